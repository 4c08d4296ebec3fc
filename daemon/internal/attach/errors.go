// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// What ops wait for (op.WaitFor, Runner.Wake).
const (
	waitHypervisor = "hypervisor"
	waitRegistry   = "registry"
	// waitGuest is a guest that has to let go of a disk which it may not keep.
	waitGuest = "guest"
	// waitTurn is what the runner says of an op that another one is in the way of.
	waitTurn = "turn"
)

// busyDelay is how long a step waits before it asks a busy libvirt again.
const busyDelay = 200 * time.Millisecond

// hvError gives an error of the hypervisor the type that tells the runner what
// to do.
func hvError(err error) error {
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return op.WaitFor(waitHypervisor, err)
	case errors.Is(err, hv.ErrBusy):
		return op.Retry(busyDelay, err)
	}
	return err
}

// registryError does the same for the registry.
func registryError(err error) error {
	if away(err) {
		return op.WaitFor(waitRegistry, err)
	}
	return err
}

// away says whether the registry did not answer: what was asked of it may have
// been done or not.
func away(err error) bool { return api.CodeOf(err) == api.CodeRegistryUnavailable }

// lost says whether the attachment is not this op's any more: the host was
// fenced since the op began, or an operator has ended the attachment. Whatever
// becomes of it now is not for this op to touch.
func lost(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeStaleEpoch, api.CodeNotYourHost, api.CodeNotFound:
		return true
	default:
		return false
	}
}

// refused is an error of a check, made before anything was touched, as the
// caller gets it.
func refused(err error) error {
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return api.Errorf(api.CodeHypervisorUnavailable, "libvirt does not answer; nothing was changed")
	case errors.Is(err, context.DeadlineExceeded): // the hypervisor has a watchdog of its own
		return api.Errorf(api.CodeRegistryUnavailable, "the registry does not answer; nothing was changed")
	}
	return err
}
