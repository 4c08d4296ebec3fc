// SPDX-License-Identifier: Apache-2.0

package hv

// fixedJobStart are the first releases of QEMU's stable branches that have its commit
// "mirror: Fix missed dirty bitmap writes during startup" (0f51f9c342 on its main branch).
var fixedJobStart = []Version{{Major: 10, Patch: 9}, {Major: 10, Minor: 2, Patch: 2}}

// devRelease is the first patch number that QEMU gives to what is on the way to a release.
const devRelease = 50

// JobStart says what a version of QEMU may do wrong to a guest that runs while a copy or an
// active commit begins on one of its disks.
type JobStart struct {
	// LosesWrites: it may lose a write of the guest that is under way.
	LosesWrites bool
	// KillsGuest: the process of a guest with I/O threads may end, if the copy is synchronous.
	KillsGuest bool
}

// JobStartOf says what a QEMU of this version, or an unknown one if it is zero, may do.
func JobStartOf(qemu Version) JobStart {
	return JobStart{LosesWrites: jobStartLosesWrites(qemu), KillsGuest: jobStartKillsGuest(qemu)}
}

// jobStartKillsGuest reports whether the guest's process may end as a synchronous copy begins. QEMU
// 8.0 has the fix, commit 32125b1460. A guest whose disk has no I/O thread is not concerned.
func jobStartKillsGuest(qemu Version) bool { return qemu.Before(Version{Major: 8}) }

// jobStartLosesWrites: from the beginning of such a job until it has looked through the disk for
// what is allocated, these versions notice no write: what was not allocated when the job came past
// it, and is a moment later, is copied by nobody. It began with the commit 32125b1460 in QEMU 8.0.
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

// CopySkipsZeros reports whether a QEMU of this version, or an unknown one if it is zero, may leave
// out zeros as it copies to a target that reads as zeros. From 10.1 on it does (block/mirror.c,
// zero_bitmap), and vendors have put that into versions before (RHEL into 10.0.0-4.el10), which do
// not say so: nobody knows it of 9.1 and later. It asks the target alone, which libvirt puts over
// its base images in the pivot, so that these would show through.
func CopySkipsZeros(qemu Version) bool {
	return qemu == (Version{}) || !qemu.Before(Version{Major: 9, Minor: 1})
}

// JobEndKillsGuest reports whether the process of a guest with a QEMU of this version, or an
// unknown one if it is zero, may end with a synchronous copy that fails. Seen in 7.2; 8.0 and
// later were not tried.
func JobEndKillsGuest(qemu Version) bool { return qemu.Before(Version{Major: 8}) }
