// SPDX-License-Identifier: Apache-2.0

package hv

// fixedJobStart are the first releases with QEMU's commit "mirror: Fix missed dirty bitmap writes
// during startup" (0f51f9c342 on its main branch).
var fixedJobStart = []Version{{Major: 10, Patch: 9}, {Major: 10, Minor: 2, Patch: 2}}

// devRelease is the first patch number of QEMU's development versions before a release.
const devRelease = 50

// JobStart describes the bugs of a QEMU version that may harm a running guest when a copy or an
// active commit starts on one of its disks.
type JobStart struct {
	// LosesWrites: QEMU may lose a guest's write that is under way.
	LosesWrites bool
	// KillsGuest: the process of a guest with I/O threads may end if the copy is synchronous.
	KillsGuest bool
}

// JobStartOf returns the bugs of this QEMU version; zero means an unknown version.
func JobStartOf(qemu Version) JobStart {
	return JobStart{LosesWrites: jobStartLosesWrites(qemu), KillsGuest: jobStartKillsGuest(qemu)}
}

// jobStartKillsGuest reports whether a QEMU has the bug KillsGuest, which commit 32125b1460 fixed
// in QEMU 8.0.
func jobStartKillsGuest(qemu Version) bool { return qemu.Before(Version{Major: 8}) }

// jobStartLosesWrites reports whether QEMU's job may miss writes at its start. Versions with this
// bug record no write until the job has scanned the disk for allocated blocks, so a block that the
// guest allocates just after the scan passed it is never copied. Commit 32125b1460 in QEMU 8.0
// introduced the bug.
func jobStartLosesWrites(qemu Version) bool {
	if qemu == (Version{}) {
		return true
	}
	for _, fixed := range fixedJobStart {
		if qemu.Major == fixed.Major && qemu.Minor == fixed.Minor && qemu.Patch < devRelease {
			return qemu.Before(fixed)
		}
	}
	return !qemu.Before(Version{Major: 8}) && qemu.Before(Version{Major: 11})
}

// CopySkipsZeros reports whether a QEMU of this version (zero: unknown) may omit zeros in a copy
// to a target that reads as zeros. QEMU does so from 10.1 on (block/mirror.c, zero_bitmap).
// Vendors have backported that without a visible version (RHEL to 10.0.0-4.el10), so
// CopySkipsZeros returns true for 9.1 and later. QEMU checks the target alone. libvirt puts the
// target over its base images only in the pivot, so the base images would show through.
func CopySkipsZeros(qemu Version) bool {
	return qemu == (Version{}) || !qemu.Before(Version{Major: 9, Minor: 1})
}

// JobEndKillsGuest reports whether the process of a guest with a QEMU of this version (zero:
// unknown) may end when a synchronous copy fails. The bug was seen in 7.2; 8.0 and later were not
// tried.
func JobEndKillsGuest(qemu Version) bool { return qemu.Before(Version{Major: 8}) }
