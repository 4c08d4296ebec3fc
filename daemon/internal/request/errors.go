// SPDX-License-Identifier: Apache-2.0

package request

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// What ops wait for (op.WaitFor, Runner.Wake). The runner itself says WaitTurn of an op
// that waits for another op.
const (
	WaitHypervisor = "hypervisor"
	WaitProcesses  = "processes" // the program that looks at them for the daemon
	WaitRegistry   = "registry"
	WaitStorage    = "storage"
	WaitResume     = "resume" // of a guest that Volferry has paused
	WaitWake       = "wake"   // of a guest that sleeps or has crashed
	WaitBackup     = "backup" // of the disk, of somebody else
	WaitTurn       = "turn"
)

// BusyDelay is how long a step waits before it tries again if libvirt is busy.
const BusyDelay = 200 * time.Millisecond

// HV gives an error of the hypervisor the type that tells the runner what to do.
func HV(err error) error {
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return AwaitHypervisor(err)
	case errors.Is(err, hv.ErrBusy):
		return op.Retry(BusyDelay, err)
	}
	return err
}

// AwaitHypervisor has an op wait for what does not answer.
func AwaitHypervisor(err error) error {
	if _, notAsked := errors.AsType[*hv.NotAskedError](err); notAsked {
		return op.WaitFor(WaitProcesses, err)
	}
	return op.WaitFor(WaitHypervisor, err)
}

// NoHypervisor is the refusal of a request that needs what does not answer.
func NoHypervisor(err error) *api.Error {
	return api.Errorf(api.CodeHypervisorUnavailable, "%s; nothing was changed", hv.Unanswered(err))
}

// Registry gives an error of the registry the type that tells the runner what to do.
func Registry(err error) error {
	if Away(err) {
		return op.WaitFor(WaitRegistry, err)
	}
	return err
}

// AtHome refuses an action on a domain of this host that was moved to another host by live
// migration: it looks as if it were stopped here. What begins the message, as in "cannot
// attach volume x".
func AtHome(verdict string, dom *hv.Domain) error {
	if dom == nil || !dom.Moved {
		return nil
	}
	return api.Errorf(api.CodeStateForbidden, "%s: instance %s was moved to another host behind Volferry's back (virsh migrate) and may run there; move it back, or stop it there and start it here (`%s`)",
		verdict, dom.Name, api.ShellLine("virsh", "start", "--", dom.Name))
}

// Away reports whether the registry did not answer: what it was asked for may have been done
// or not.
func Away(err error) bool { return api.CodeOf(err) == api.CodeRegistryUnavailable }

// Refused returns the error of a check that was made before anything was touched, in the
// form for the caller.
func Refused(err error) error {
	var unreadable *hv.Unreadable
	switch {
	case errors.As(err, &unreadable): // each of them may have what is asked for
		return api.Errorf(api.CodeHypervisorUnavailable, "libvirt cannot tell which disks every domain of this host has: %v; nothing was changed; it is refused until each can be read (virsh dumpxml) or is gone", unreadable)
	case errors.Is(err, hv.ErrUnavailable):
		return NoHypervisor(err)
	case errors.Is(err, context.DeadlineExceeded): // the hypervisor has a watchdog of its own
		return api.Errorf(api.CodeRegistryUnavailable, "the registry does not answer; nothing was changed")
	}
	return err
}

// Lost reports whether an op has lost what it works on: the host was fenced since the op
// began, or an operator has ended the op's work. The op must not touch it any more.
func Lost(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeStaleEpoch, api.CodeNotYourHost, api.CodeNotFound:
		return true
	default:
		return false
	}
}

// AsOfNow makes a call to the registry under the op's epoch. If the host was fenced since
// and is back, it repeats the call under the present epoch: nobody else says what became of
// a thing in the end, and what was taken from the host is not found any more. It is not for
// calls that take a thing. Again makes the op ids of the two calls different.
func AsOfNow(epoch int64, now func() (int64, error), say func(epoch int64, again string) error) error {
	err := say(epoch, "")
	if api.CodeOf(err) != api.CodeStaleEpoch {
		return err
	}
	current, nowErr := now()
	if nowErr != nil {
		return nowErr
	}
	if current <= epoch {
		return err
	}
	return say(current, fmt.Sprintf(".%d", current))
}
