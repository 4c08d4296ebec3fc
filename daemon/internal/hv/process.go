// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"context"
	"errors"
)

// OpenFile is one open file descriptor of a domain's process on an image.
type OpenFile struct {
	FD       int
	Writable bool
}

// Process is what tells the process of an active domain from every other one that ran
// on this host.
type Process struct {
	ID string
	// Images are those that it was started with.
	Images []string
	// Kept: the live disk in question has a top image that the process was started with
	// and has had open in this disk ever since.
	Kept bool
}

// ProcessUser is a user and its main group by number.
type ProcessUser struct {
	UID uint32
	GID uint32
	// Given: libvirt makes this user the owner of an image before a guest opens it, where the
	// filesystem lets root do that. If not, the user must have been let in by others.
	Given bool
}

// ConfinedUser is the user that the process of a domain runs as (Hypervisor.QEMUUser).
// confined is false if that is libvirt's own user, and QEMU is confined by none.
func ConfinedUser(ctx context.Context, h Hypervisor, id string) (user ProcessUser, confined bool, err error) {
	user, err = h.QEMUUser(ctx, id)
	if errors.Is(err, ErrUnsupported) {
		return user, false, nil
	}
	return user, err == nil, err
}
