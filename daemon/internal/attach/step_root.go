// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

type rootSteps struct{ *env }

// stepGuard prevents starts of the instance while it has no root volume. It precedes the change of
// the definition. If the definition still lacks the disk, its undo keeps the guard.
func (e rootSteps) stepGuard() op.Step {
	do := func(_ context.Context, _ *op.Run, in *input) error {
		if err := e.Guards.Set(in.InstanceID, guard.OwnerRoot, instance.RootReason(in.InstanceName)); err != nil {
			return api.Errorf(api.CodeJournalUnavailable, "cannot change the root volume of instance %s: this host cannot keep it from starting meanwhile: %v", in.InstanceName, err)
		}
		return nil
	}
	undo := func(ctx context.Context, _ *op.Run, in *input) error {
		v, err := e.sure(ctx, in)
		if err != nil || (v.dom != nil && v.config == absent) {
			return err
		}
		return e.Guards.Clear(in.InstanceID, guard.OwnerRoot)
	}
	return step(stepNameGuard, do, undo, e.guarded(true))
}

func (e rootSteps) stepUnguard() op.Step {
	do := func(_ context.Context, _ *op.Run, in *input) error {
		return e.Guards.Clear(in.InstanceID, guard.OwnerRoot)
	}
	return step("unguard", do, nil, e.guarded(false))
}

func (e rootSteps) guarded(want bool) op.ObserveFunc[input] {
	return func(_ context.Context, _ *op.Run, in *input) (op.Observation, error) {
		has, err := e.Guards.Has(in.InstanceID, guard.OwnerRoot)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(has == want), nil
	}
}

// stepStayOff checks again that the instance is off, after its definition lost the root. It
// detects a start that the hook permitted before the guard existed, because libvirt finishes that
// start before it changes the definition. After this step nothing can start the instance, so it is
// the commit point.
func (e rootSteps) stepStayOff() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		v, err := e.sure(ctx, in)
		switch {
		case err != nil:
			return err
		case v.dom != nil && v.active:
			return in.off(rootDetach, v.dom)
		case v.config != absent:
			return in.changed(v)
		case v.saved:
			return in.notSaved(v)
		}
		if err := in.onItsImage(in.cannotDetach(), v); err != nil {
			return err
		}
		return r.Note(ctx, unplugNote{Gone: true})
	}
	return step(stepNameStayOff, do, nil, nil)
}

// stepVerifyRoot checks that the instance is off, and will boot from this disk at the previous
// root's address.
func (e rootSteps) stepVerifyRoot() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *input) error {
		was, err := e.slotDisk(in)
		if err != nil {
			return err
		}
		v, err := e.sure(ctx, in)
		switch {
		case err != nil:
			return err
		case v.dom == nil || v.config != attached:
			return in.changed(v)
		case v.active && v.live != attached:
			return in.off(rootAttach, v.dom)
		}
		if err := in.asInSlot(v, was); err != nil || !v.active {
			return err
		}
		// On a host without the hook the guest may have been started with the new root.
		return in.isWanted(v.liveDisk, "the running guest", serialOf(in, was))
	}
	return step(stepNameVerify, do, nil, nil)
}

// asInSlot refuses a disk that differs, for the guest, from the slot's previous disk.
func (in *input) asInSlot(v *view, previous *hv.Disk) error {
	d := v.configDisk
	if err := in.isWanted(d, "its definition", serialOf(in, previous)); err != nil {
		return err
	}
	var wrong string
	switch {
	case previous != nil && d.Address != previous.Address:
		wrong = fmt.Sprintf("is at %s, not at %s", d.Address, previous.Address)
	case previous != nil && d.Bus != previous.Bus:
		wrong = fmt.Sprintf("is on bus %s, not on %s", d.Bus, previous.Bus)
	case previous != nil && d.BootOrder != previous.BootOrder:
		wrong = fmt.Sprintf("has the place %d in the order of booting, not %d", d.BootOrder, previous.BootOrder)
	case !api.IsRoot(instance.BootIndexes(v.dom.Config)[in.Device]):
		wrong = "is not the first in the order of booting"
	default:
		return nil
	}
	return api.Errorf(api.CodeChainChanged, "%s: disk %s %s; `%s` shows what is there", in.cannot(rootAttach), in.Device, wrong, shell.Line("virsh", "dumpxml", "--inactive", "--", in.InstanceName))
}
