// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// Power starts, pauses and ends the process of a domain.
type Power interface {
	// Suspend pauses a running domain. It returns nil if the domain is paused.
	Suspend(ctx context.Context, id string) error
	// Resume resumes a paused domain. It returns nil if the domain runs, and ErrBusy if another
	// domain has the lease of one of its images.
	Resume(ctx context.Context, id string) error
	// PowerOff ends the domain's process at once, like a power cut. It returns nil if the domain is
	// off.
	PowerOff(ctx context.Context, id string) error
	// PowerOn starts a domain. It returns nil if the domain is active, ErrGuarded if the host's
	// hook refuses, and ErrInUse if an image is open elsewhere. It restores a managed save image,
	// if any, with the disks of the save.
	PowerOn(ctx context.Context, id string) error
	// Shutdown sends the guest a shutdown request (ACPI), and does not wait. The guest may take
	// its time, refuse, or not understand. It returns nil if the domain is off.
	Shutdown(ctx context.Context, id string) error
	// RebootGuest sends the guest a reboot request. It returns ErrNotActive if the domain is off.
	RebootGuest(ctx context.Context, id string) error
}
