// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Version is the version of a program.
type Version struct{ Major, Minor, Patch int }

// VersionOf returns the version that libvirt gives as one number: 9000001 is 9.0.1.
func VersionOf(n uint64) Version {
	return Version{Major: int(n / 1_000_000), Minor: int(n / 1_000 % 1_000), Patch: int(n % 1_000)}
}

// String returns the version as major.minor.patch.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Before reports whether v is older than other.
func (v Version) Before(other Version) bool {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor), cmp.Compare(v.Patch, other.Patch)) < 0
}

// About describes the hypervisor and its configuration.
type About struct {
	// Libvirt and QEMU are the versions of these programs. QEMU is the version that the next guest
	// starts with, zero if QEMU is not installed.
	Libvirt, QEMU Version
	// SecurityModels are the models that confine QEMU: dac, apparmor, selinux.
	SecurityModels []string
	// GivesImages: libvirt makes QEMU's user the owner of images (dynamic_ownership).
	// RemembersOwners: libvirt restores the previous owner when QEMU is done with the image
	// (remember_owner).
	GivesImages, RemembersOwners bool
	// Process is libvirt's own process, nil if not found.
	Process *DaemonProcess
}

// DeniesBelow reports whether libvirt's rules for AppArmor deny a guest writes to the images below
// its overlays, if libvirt makes the rules while the overlays are there (Processes.DeniesBelow).
func DeniesBelow(libvirt Version) bool { return libvirt.Before(Version{Major: 12, Minor: 1}) }

// DaemonProcess is the process of libvirt that starts domains.
type DaemonProcess struct {
	// ID differs from the ID of every other process that ran on this host.
	PID int
	ID  string
	// Name is libvirtd or virtqemud.
	Name string
	// Since is the start time of the process by the present clock.
	Since time.Time
}

// Host describes the hypervisor, and reports its events.
type Host interface {
	// About returns the hypervisor's description of itself. Unknown fields stay empty.
	About(ctx context.Context) (About, error)
	// HookRefuses reports whether the host's hook refuses the start of a domain with this id. It
	// tries to start a transient domain that cannot run, and leaves no guest process.
	HookRefuses(ctx context.Context, id string) (bool, error)
	// Up reports whether the connection works now. A hypervisor that hangs is noticed after a
	// while.
	Up() bool
	// Answers makes one cheap call. It returns ErrUnavailable if there is no answer before ctx
	// ends.
	Answers(ctx context.Context) error
	// Events returns a subscription, which ends when ctx ends. It starts with EventConnected if
	// the connection is up. A slow reader loses the oldest events, and gets another EventConnected
	// instead.
	Events(ctx context.Context) <-chan Event
}
