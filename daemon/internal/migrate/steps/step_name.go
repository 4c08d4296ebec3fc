// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepNameEnd changes the definition to dst before the switch, while the guest is paused and both
// chains read the same: after any crash either name is right. It stays right if another program
// resumes the guest, since the mirror writes to both.
func (e *Env) stepNameEnd(to direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		disk, err := e.readActive(ctx, s)
		if err != nil {
			return err
		}
		if err := disk.mayName(s, to); err != nil {
			return err
		}
		switch mirror, err := disk.mirrorTo(to, s); {
		case err != nil:
			return err
		case mirror == nil && disk.live != to.end: // it is another process by now, and dst does not get its writes
			return jobEndedEarly(s, to.image(s))
		}
		if err := e.noteRun(ctx, r, s, to, disk); err != nil {
			return err
		}
		return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, to.chain(s)))
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		disk, err := e.confirmDiskInPause(ctx, r, s)
		if err != nil {
			return err
		}
		switch {
		case disk.config == s.Before() && !disk.active:
			return e.guards.Clear(s.InstanceID, s.Owner()) // set by a daemon that died after the change
		case disk.config == s.Before() && disk.live == s.Before():
			return nil
		case disk.active && disk.live == s.Before() && disk.config == to.end:
			return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.beforeChain()))
		case disk.active && disk.live == s.Before():
			// Another program changed the definition. The paused guest is on its old chain.
			return nil
		case disk.config == to.end:
			// The process died after the definition named the end: the instance may have been
			// started from there since.
			return e.underGuard(s, "taking back", func() error { return e.unnameEnd(ctx, r, s) })
		}
		return op.UnknownOutcome(chainChanged(s, disk))
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(disk.config == to.end), nil
	}
	named := step(to.nameStep(), do, undo, observe)
	named.Verifies = true // SetConfigChain verifies, and stepPivot looks again
	return provided(named, e.endUnchangedInPause(to))
}

// stepNameLeft changes the definition to the end after the switch: a commit, and a copy in the
// background, do not write to both images, so the definition names the overlay while the guest may
// write to it. libvirt has changed the name in the pivot; this step verifies that. It ignores
// another program's change, since the guest is paused: stepSettle reports it. left returns the
// error for a disk that is on the overlay, or would be after the next start.
func (e *Env) stepNameLeft(to direction, left func(*Spec, *diskState) *api.Error) op.Step {
	named := func(disk *diskState) bool {
		return disk.config == to.end || disk.config != OnOverlay && disk.active && disk.live == to.end
	}
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		disk, err := e.confirmDiskInPause(ctx, r, s)
		switch {
		case err != nil:
			return err
		case named(disk) && !disk.active:
			return e.guards.Clear(s.InstanceID, s.Owner()) // set by a daemon that died after the change
		case named(disk):
			return nil
		case disk.config == OnOverlay && !disk.active && to.end == OnDst:
			return e.underGuard(s, "going on with", func() error { return e.nameDstOfOff(ctx, r, s) })
		case disk.config == OnOverlay && (!disk.active || disk.live == OnOverlay):
			return op.UnknownOutcome(left(s, disk))
		case !disk.active || disk.live != to.end:
			return op.UnknownOutcome(chainChanged(s, disk))
		}
		return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, to.chain(s)))
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		disk, err := e.readDisk(ctx, s)
		if err != nil || !named(disk) || disk.active {
			return op.DoneIf(err == nil && named(disk)), err
		}
		guarded, err := e.guards.Has(s.InstanceID, s.Owner())
		return op.DoneIf(!guarded), err
	}
	return step(to.nameStep(), do, nil, observe)
}

// nameDstOfOff changes the definition to dst for a guest that went off after the pivot. Where the
// guard hook does not work it may be started on the overlay meanwhile, and its new writes are then
// only there.
func (e *Env) nameDstOfOff(ctx context.Context, r *op.Run, s *Spec) error {
	if err := e.dstHasAll(ctx, r, s); err != nil {
		return err
	}
	if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.DstChain()); err != nil {
		return e.hvError(err)
	}
	err := e.renameIfStarted(ctx, s, toDst)
	if started := (*errWorldChanged)(nil); errors.As(err, &started) {
		return op.Retry(request.BusyDelay, err) // the overlay is checked again
	}
	return err
}
