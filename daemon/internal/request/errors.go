// SPDX-License-Identifier: Apache-2.0

package request

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// The names of things that ops wait for (op.WaitFor, Runner.Wake). The runner itself uses WaitTurn
// for an op that waits for another op.
const (
	WaitHypervisor = "hypervisor"
	WaitProcesses  = "processes" // volferryd-processes reads them
	WaitRegistry   = "registry"
	WaitStorage    = "storage"
	WaitResume     = "resume" // of a guest that Volferry has paused
	WaitWake       = "wake"   // of a guest that sleeps or has crashed
	WaitBackup     = "backup" // another program's backup of the disk
	WaitTurn       = "turn"
)

// BusyDelay is the delay before a step is tried again while libvirt is busy.
const BusyDelay = 200 * time.Millisecond

// HV gives an error of the hypervisor the type that makes the runner wait, try again, or fail the
// step.
func HV(err error) error {
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return AwaitHypervisor(err)
	case errors.Is(err, hv.ErrBusy):
		return op.Retry(BusyDelay, err)
	}
	return err
}

// AwaitHypervisor makes an op wait for the program that does not answer: libvirtd or
// volferryd-processes.
func AwaitHypervisor(err error) error {
	if _, notAsked := errors.AsType[*hv.NotAskedError](err); notAsked {
		return op.WaitFor(WaitProcesses, err)
	}
	return op.WaitFor(WaitHypervisor, err)
}

// NoHypervisor returns the refusal of a request because libvirtd or volferryd-processes does not
// answer.
func NoHypervisor(err error) *api.Error {
	return api.Errorf(api.CodeHypervisorUnavailable, "%s", hv.Unanswered(err))
}

// Registry gives an error of the registry the type that makes the runner wait or fail the step.
func Registry(err error) error {
	if Away(err) {
		return op.WaitFor(WaitRegistry, err)
	}
	return err
}

// AtHome refuses an action on a domain that a live migration has moved to another host; here the
// domain appears to be stopped. verdict begins the message, as in "cannot attach volume x".
func AtHome(verdict string, dom *hv.Domain) error {
	if dom == nil || !dom.Moved {
		return nil
	}
	return api.Errorf(api.CodeStateForbidden, "%s: instance %s was moved to another host behind Volferry's back (virsh migrate) and may run there; move it back, or stop it there and start it here (`%s`)",
		verdict, dom.Name, shell.Line("virsh", "start", "--", dom.Name))
}

// Away reports whether err means that the registry did not answer, so that the outcome is unknown.
func Away(err error) bool { return api.CodeOf(err) == api.CodeRegistryUnavailable }

// Refused converts an error that occurred before any change to the error for the caller of the
// API.
func Refused(err error) error {
	var unreadable *hv.Unreadable
	switch {
	case errors.As(err, &unreadable): // each may have the requested disk
		return api.Errorf(api.CodeHypervisorUnavailable, "libvirt cannot tell which disks every domain of this host has: %v; nothing was changed; it is refused until each can be read (virsh dumpxml) or is gone", unreadable)
	case errors.Is(err, hv.ErrUnavailable):
		return NoHypervisor(err)
	case Away(err):
		return withoutRegistry(err)
	case errors.Is(err, context.DeadlineExceeded): // the hypervisor's calls have their own timeout
		return api.Errorf(api.CodeRegistryUnavailable, "the registry does not answer; nothing was changed")
	}
	return err
}

const needsRegistry = "volferryd of this host needs the registry, and nothing was changed: "

// withoutRegistry returns the refusal of a request because the registry does not answer this host.
func withoutRegistry(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || strings.HasPrefix(e.Message, needsRegistry) {
		return err
	}
	out := *e
	out.Message = fmt.Sprintf("%s%s; on the registry's machine `%s` shows more", needsRegistry, e.Message, shell.Line("systemctl", "status", "volferry-registry"))
	return &out
}

// Lost reports whether err means that an op has lost the right to its object: the host was fenced,
// or an operator has ended the op's work. The op must not touch the object.
func Lost(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeStaleEpoch, api.CodeNotYourHost, api.CodeNotFound:
		return true
	default:
		return false
	}
}

// AsOfNow calls the registry with the op's epoch. If the host was fenced and has rejoined since,
// it calls again with the present epoch, because only this host can report the outcome; the answer
// for an object that the registry took from the host is not_found. Do not use AsOfNow for a call
// that acquires something. again makes the op id of the second call different.
func AsOfNow(epoch int64, now func() (int64, error), call func(epoch int64, again string) error) error {
	err := call(epoch, "")
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
	return call(current, fmt.Sprintf(".%d", current))
}
