// SPDX-License-Identifier: Apache-2.0

package request

import (
	"context"
	"errors"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// What ops wait for (op.WaitFor, Runner.Wake). WaitTurn is what the runner says of
// an op that another one is in the way of.
const (
	WaitHypervisor = "hypervisor"
	WaitRegistry   = "registry"
	WaitTurn       = "turn"
)

// busyDelay is how long a step waits before it asks a busy libvirt again.
const busyDelay = 200 * time.Millisecond

// HV gives an error of the hypervisor the type that tells the runner what to do.
func HV(err error) error {
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return op.WaitFor(WaitHypervisor, err)
	case errors.Is(err, hv.ErrBusy):
		return op.Retry(busyDelay, err)
	}
	return err
}

// Registry does the same for an error of the registry.
func Registry(err error) error {
	if Away(err) {
		return op.WaitFor(WaitRegistry, err)
	}
	return err
}

// Away says whether the registry did not answer: what was asked of it may have
// been done or not.
func Away(err error) bool { return api.CodeOf(err) == api.CodeRegistryUnavailable }

// Refused is an error of a check, made before anything was touched, as the caller
// gets it.
func Refused(err error) error {
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return api.Errorf(api.CodeHypervisorUnavailable, "libvirt does not answer; nothing was changed")
	case errors.Is(err, context.DeadlineExceeded): // the hypervisor has a watchdog of its own
		return api.Errorf(api.CodeRegistryUnavailable, "the registry does not answer; nothing was changed")
	}
	return err
}
