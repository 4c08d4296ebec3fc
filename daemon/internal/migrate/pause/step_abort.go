// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"cmp"
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
)

// AbortSteps end the block job into dst of a mirror or of a failed complete op. They pause the
// guest if there is such a job: with QEMU 7.2 the end of a synchronous job may kill the process of
// a running guest.
func (e *Env) AbortSteps(abort op.Step) []op.Step {
	pause := seal.Provided(e.ifMirrored(e.stepPause(move.ToAbort)), e.look.LeaveSilentDst, e.blockjob.CatchUpToAbort)
	undo := pause.Undo
	pause.Undo = func(ctx context.Context, r *op.Run) error {
		s, err := move.SpecOf(r)
		if err != nil {
			return err
		}
		return cmp.Or(undo(ctx, r), e.blockjob.EndCatchUp(ctx, s))
	}
	return []op.Step{
		pause,
		abort,
		e.StepResume(move.ToAbort),
	}
}

func (e *Env) ifMirrored(st op.Step) op.Step {
	do, observe := st.Do, st.Observe
	idle := func(ctx context.Context, r *op.Run) (bool, error) {
		s, err := move.SpecOf(r)
		if err != nil {
			return false, err
		}
		disk, err := e.move.ReadDisk(ctx, s)
		return err == nil && disk.Ours(move.ToDst, s) == nil, err
	}
	st.Do = func(ctx context.Context, r *op.Run) error {
		if none, err := idle(ctx, r); none || err != nil {
			return err
		}
		return do(ctx, r)
	}
	st.Observe = func(ctx context.Context, r *op.Run) (op.Observation, error) {
		if none, err := idle(ctx, r); none || err != nil {
			return op.DoneIf(none), err
		}
		return observe(ctx, r)
	}
	return st
}

// StepAbortMirror ends the block job into dst before a cancel begins its own job.
func (e *Env) StepAbortMirror() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *move.Spec) error {
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.Active && disk.Mirror == nil && disk.Live != s.Before() {
			return look.ChainChanged(s, disk)
		}
		if _, err := disk.MirrorTo(move.ToDst, s); err != nil && disk.Ours(move.ToSrc, s) == nil {
			return err
		}
		return e.endMirror(ctx, s, disk)
	}
	observe := func(ctx context.Context, r *op.Run, s *move.Spec) (op.Observation, error) {
		disk, err := e.look.ConfirmDiskOfPaused(ctx, s)
		if err != nil {
			return op.Unknown, e.endPauseOnDisagreement(ctx, r, s, move.ToAbort, err)
		}
		// A commit into src is this cancel's own, from before a crash.
		return op.DoneIf(!disk.Active || (disk.Live == s.Before() && (disk.Mirror == nil || disk.Ours(move.ToSrc, s) != nil))), nil
	}
	return move.Step(AbortStep, do, nil, observe)
}

// AbortStep is the name of StepAbortMirror.
const AbortStep = "abort_mirror"

// endMirror ends the copy job, if any, of a guest that does not run. The guest stays on its image.
func (e *Env) endMirror(ctx context.Context, s *move.Spec, disk *move.DiskState) error {
	e.progress.Clear(s.MigrationID)
	switch {
	case disk.Ours(move.ToDst, s) == nil:
		return e.blockjob.EndCatchUp(ctx, s)
	case disk.Dom.State == hv.StateRunning:
		return &move.WorldChangedError{What: fmt.Sprintf("instance %s was resumed by somebody before the job on its disk was ended", s.InstanceName)}
	}
	if err := e.blockjob.EndCatchUp(ctx, s); err != nil { // the guest is paused
		return err
	}
	e.log.Info("ending the copy job of a migration", "migration", s.MigrationID, "volume", s.VolumeName, "guest", disk.Dom.State)
	if err := e.hv.AbortJob(ctx, s.InstanceID, s.Target); err != nil {
		return e.move.HVError(err)
	}
	return move.NotEnded(s)
}

// StepEndMirror ends our copy job, whatever other jobs and images the disk has.
func (e *Env) StepEndMirror() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *move.Spec) error {
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return err
		}
		return e.endMirror(ctx, s, disk)
	}
	observe := func(ctx context.Context, _ *op.Run, s *move.Spec) (op.Observation, error) {
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(disk.Ours(move.ToDst, s) == nil), nil
	}
	return move.Step(AbortStep, do, nil, observe)
}
