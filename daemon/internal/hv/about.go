// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"cmp"
	"fmt"
	"time"
)

// Version is the version of a program.
type Version struct{ Major, Minor, Patch int }

// VersionOf reads a version as libvirt says it, as one number: 9000001 is 9.0.1.
func VersionOf(n uint64) Version {
	return Version{Major: int(n / 1_000_000), Minor: int(n / 1_000 % 1_000), Patch: int(n % 1_000)}
}

// String is the version for people.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Before says whether v is older than other.
func (v Version) Before(other Version) bool {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor), cmp.Compare(v.Patch, other.Patch)) < 0
}

// About is what the hypervisor says of itself.
type About struct {
	// Libvirt and QEMU are their versions. QEMU's is that of the program that the next
	// guest would be started with; zero if there is none.
	Libvirt, QEMU Version
	// SecurityModels confine QEMU: dac, apparmor, selinux.
	SecurityModels []string
	// GivesImages: libvirt makes QEMU's user the owner of images (dynamic_ownership).
	// RemembersOwners: it gives them back to whom they belonged to (remember_owner).
	GivesImages, RemembersOwners bool
	// Process is libvirt's own, nil if it was not found.
	Process *DaemonProcess
}

// DaemonProcess is the process of libvirt that starts domains.
type DaemonProcess struct {
	// PID is its number, and ID tells it from every other one that ran on this host.
	PID int
	ID  string
	// Name is libvirtd or virtqemud.
	Name string
	// Since is when it was started, by the clock of now.
	Since time.Time
}
