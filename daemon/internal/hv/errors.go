// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"errors"
	"fmt"
)

// The errors that callers branch on. Every method may return ErrUnavailable (libvirt is down, hung
// or restarting). The outcome of the call is then unknown: read the state again when libvirt is
// back.
var (
	ErrUnavailable = errors.New("hypervisor unavailable")
	// ErrNotFound: the domain, disk, pool or pool volume does not exist.
	ErrNotFound = errors.New("not found")
	// ErrNotConnected is an ErrNotFound: the pool volume has no device until it is connected. Only
	// connecting it shows whether the volume exists.
	ErrNotConnected = fmt.Errorf("%w, since it is not connected", ErrNotFound)
	// ErrNotActive: the call needs a running or paused domain.
	ErrNotActive = errors.New("domain is not active")
	// ErrNoProcess: the domain is active, but its process, and so its open files, cannot be found.
	ErrNoProcess = errors.New("the process of the domain was not found")
	// ErrProcessEnds: the hypervisor lost the domain's process during the call. The hypervisor
	// shows the domain as off, now or soon.
	ErrProcessEnds = errors.New("the process of the domain ends")
	// ErrActive: the call needs a domain that is shut off.
	ErrActive = errors.New("domain is active")
	// ErrNotReady: the pivot came before the job was ready. Nothing changed; try again.
	ErrNotReady = errors.New("block job is not ready")
	// ErrBusy: another block job or domain job prevents the call.
	ErrBusy = errors.New("domain or disk is busy")
	// ErrInUse: an image is open elsewhere (in another domain, another disk or a tool) in a way
	// that excludes this use. Nothing changed.
	ErrInUse = errors.New("image is in use")
	// ErrExists: the pool volume exists, or the target or guest-visible address of a disk is
	// taken.
	ErrExists = errors.New("already exists")
	// ErrGuarded: the host's hook refused the start of a domain, for the reason in the error. The
	// domain is off.
	ErrGuarded = errors.New("start refused")
	// ErrIncomplete: a file of SaveMemory was not written completely.
	ErrIncomplete = errors.New("saved memory is incomplete")
	// ErrNoAnswer: it is unknown which part of a request the storage has done, and whether it
	// still works on the request.
	ErrNoAnswer = errors.New("the storage has not answered")
	// ErrUnsupported: the hypervisor permanently refuses this disk or this call.
	ErrUnsupported = errors.New("unsupported by the hypervisor")
)

// NotPortableError is an ErrUnsupported: a definition has something of its host that other hosts
// may not have.
type NotPortableError struct{ Has string }

func (e *NotPortableError) Error() string {
	return fmt.Sprintf("%v: the domain leans on its host: its definition has %s", ErrUnsupported, e.Has)
}

// Unwrap returns ErrUnsupported.
func (e *NotPortableError) Unwrap() error { return ErrUnsupported }
