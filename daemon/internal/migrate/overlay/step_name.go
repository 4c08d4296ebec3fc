// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// StepNameEnd changes the definition to dst before the switch, while the guest is paused and both
// chains read the same: after a crash either image in the definition is right. This also holds if
// another program resumes the guest, since the block job writes to both images.
func (e *Env) StepNameEnd(to move.Direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		disk, err := e.look.ReadActive(ctx, s)
		if err != nil {
			return err
		}
		if err := look.MayName(disk, s, to); err != nil {
			return err
		}
		switch mirror, err := disk.MirrorTo(to, s); {
		case err != nil:
			return err
		case mirror == nil && disk.Live != to.End: // another process: dst lacks its writes
			return look.JobEndedEarly(s, to.Image(s))
		}
		if err := e.blockjob.NoteRun(ctx, r, s, to, disk); err != nil {
			return err
		}
		return e.move.HVError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, to.Chain(s)))
	}
	undo := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		disk, err := e.pause.ConfirmDiskInPause(ctx, r, s)
		if err != nil {
			return err
		}
		switch {
		case disk.Config == s.Before() && !disk.Active:
			return e.guards.Clear(s.InstanceID, s.Owner()) // set by a daemon that died after the change
		case disk.Config == s.Before() && disk.Live == s.Before():
			return nil
		case disk.Active && disk.Live == s.Before() && disk.Config == to.End:
			return e.move.HVError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.BeforeChain()))
		case disk.Active && disk.Live == s.Before():
			// Another program changed the definition. The paused guest is on its old chain.
			return nil
		case disk.Config == to.End:
			// The process died after the definition named dst, so the instance may have been
			// started on dst.
			return e.underGuard(s, "taking back", func() error { return e.unnameEnd(ctx, r, s) })
		}
		return op.UnknownOutcome(look.ChainChanged(s, disk))
	}
	observe := func(ctx context.Context, _ *op.Run, s *move.Spec) (op.Observation, error) {
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(disk.Config == to.End), nil
	}
	named := move.Step(NameDstStep, do, undo, observe)
	named.Verifies = true // SetConfigChain verifies, and StepPivot looks again
	return seal.Provided(named, e.seal.EndUnchangedInPause(to))
}

// StepNameLeft changes the definition to the new image after the switch of a commit or a
// background copy. These do not write to both images, so the definition names the overlay while
// the guest may write to it. Usually libvirt has changed the definition in the pivot, and this
// step verifies that. It ignores another program's change: StepSettle reports it after the pause.
// left returns the error for a disk that is on the overlay, now or after the next start.
func (e *Env) StepNameLeft(to move.Direction, left func(*op.Run, *move.Spec, *move.DiskState) *api.Error) op.Step {
	named := func(disk *move.DiskState) bool {
		return disk.Config == to.End || disk.Config != move.OnOverlay && disk.Active && disk.Live == to.End
	}
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		disk, err := e.pause.ConfirmDiskInPause(ctx, r, s)
		switch {
		case err != nil:
			return err
		case named(disk) && !disk.Active:
			return e.guards.Clear(s.InstanceID, s.Owner()) // set by a daemon that died after the change
		case named(disk):
			return nil
		case disk.Config == move.OnOverlay && !disk.Active && to.End == move.OnDst:
			return e.underGuard(s, "going on with", func() error { return e.nameDstOfOff(ctx, r, s) })
		case disk.Config == move.OnOverlay && (!disk.Active || disk.Live == move.OnOverlay):
			return op.UnknownOutcome(left(r, s, disk))
		case !disk.Active || disk.Live != to.End:
			return op.UnknownOutcome(look.ChainChanged(s, disk))
		}
		return e.move.HVError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, to.Chain(s)))
	}
	observe := func(ctx context.Context, _ *op.Run, s *move.Spec) (op.Observation, error) {
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil || !named(disk) || disk.Active {
			return op.DoneIf(err == nil && named(disk)), err
		}
		guarded, err := e.guards.Has(s.InstanceID, s.Owner())
		return op.DoneIf(!guarded), err
	}
	name := NameSrcStep
	if to.End == move.OnDst {
		name = NameDstAfterPivotStep
	}
	return move.Step(name, do, nil, observe)
}

// nameDstOfOff changes the definition to dst for a guest that went off after the pivot. Where the
// guard hook does not work, the guest may be started on the overlay meanwhile. Then only the
// overlay has its new writes, and the definition is changed back.
func (e *Env) nameDstOfOff(ctx context.Context, r *op.Run, s *move.Spec) error {
	if err := e.dstHasAll(ctx, r, s); err != nil {
		return err
	}
	if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.DstChain()); err != nil {
		return e.move.HVError(err)
	}
	err := e.pause.RenameIfStarted(ctx, s, move.ToDst)
	if started := (*move.WorldChangedError)(nil); errors.As(err, &started) {
		return op.Retry(request.BusyDelay, err) // the overlay is checked again
	}
	return err
}
