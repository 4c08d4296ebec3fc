// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// StepKeepOff keeps the instance of an offline migration off until the migration ends. This
// freezes src, since no program may open it.
func (e *Env) StepKeepOff() op.Step {
	hold := func(ctx context.Context, s *move.Spec) error {
		if !s.Attached() {
			return nil
		}
		reason := fmt.Sprintf("volume %s of this instance is being moved with the instance stopped; "+
			"wait, or cancel it: %s", s.VolumeName, s.CancelCommand())
		if err := e.guards.Set(s.InstanceID, s.Owner(), reason); err != nil {
			return err
		}
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.Active {
			return api.Errorf(api.CodeStateForbidden, "cannot move volume %s: instance %s was started meanwhile; stop it and try again",
				s.VolumeName, s.InstanceName)
		}
		if disk.Config != move.OnSrc {
			return look.ChainChanged(s, disk)
		}
		return look.AtRest(s, disk)
	}
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if err := hold(ctx, s); err != nil {
			return err
		}
		out, err := e.seal.Seal(ctx, r, s, KeepOffStep)
		if err != nil {
			return move.LostByGuest(s, err)
		}
		return r.SetOutput(out)
	}
	undo := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		var note move.SnapshotNote
		if noted, err := r.Noted(KeepOffStep, &note); err != nil {
			return err
		} else if noted {
			if _, err := e.seal.RemoveSnapshot(ctx, s, nil); err != nil {
				return err
			}
		}
		return e.endKeepOff(s)
	}
	return seal.Provided(move.Step(KeepOffStep, do, undo, nil), e.seal.SrcUnchanged)
}

// The names of StepKeepOff and of StepEndKeepOff.
const (
	KeepOffStep    = "keep_off"
	EndKeepOffStep = "end_keep_off"
)

// StepEndKeepOff removes the guard of StepKeepOff.
func (e *Env) StepEndKeepOff() op.Step {
	do := func(_ context.Context, _ *op.Run, s *move.Spec) error { return e.endKeepOff(s) }
	return move.Step(EndKeepOffStep, do, nil, nil)
}

func (e *Env) endKeepOff(s *move.Spec) error {
	if !s.Attached() {
		return nil
	}
	return e.guards.Clear(s.InstanceID, s.Owner())
}

// StepNameDestination changes the definition of the instance, which is kept off, to dst. The copy
// is verified and the instance has not run since, so both images read the same, and the step can
// be undone.
func (e *Env) StepNameDestination() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if !s.Attached() {
			return nil
		}
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.Active || (disk.Config != move.OnSrc && disk.Config != move.OnDst) {
			return look.ChainChanged(s, disk)
		}
		// Where the guard hook does not work, the instance may have run after the comparison.
		if _, err := e.seal.SealedOrSame(ctx, s, r.OpID()); err != nil {
			return err
		}
		return e.move.HVError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.DstChain()))
	}
	undo := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if !s.Attached() {
			return nil
		}
		disk, err := e.look.ConfirmDisk(ctx, s)
		if err != nil || disk.Config != move.OnDst {
			return err // the definition is unchanged, or another program's
		}
		return e.unnameEnd(ctx, r, s) // under the guard of StepKeepOff
	}
	observe := func(ctx context.Context, _ *op.Run, s *move.Spec) (op.Observation, error) {
		if !s.Attached() {
			return op.Done, nil
		}
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(disk.Config == move.OnDst), nil
	}
	return seal.Provided(move.Step(NameDstWhileOffStep, do, undo, observe), e.seal.DstUnchanged)
}
