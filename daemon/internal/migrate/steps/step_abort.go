// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/op"
)

// abortSteps end the copy job into dst that a mirror, or a failed complete, has left. The process
// of a guest with QEMU 7.2 may end with a synchronous job, unless the guest is paused. Without a
// job the guest is not paused.
func (e *Env) abortSteps(abort op.Step) []op.Step {
	pause := provided(e.ifMirrored(e.stepPause(toAbort)), e.leaveSilentDst, e.catchUpToAbort)
	undo := pause.Undo
	pause.Undo = func(ctx context.Context, r *op.Run) error {
		s, err := specOf(r)
		if err != nil {
			return err
		}
		return cmp.Or(undo(ctx, r), e.endCatchUp(ctx, s))
	}
	return []op.Step{
		pause,
		abort,
		e.stepResume(toAbort),
	}
}

// ifMirrored makes a step do nothing if no job of ours remains.
func (e *Env) ifMirrored(st op.Step) op.Step {
	do, observe := st.Do, st.Observe
	idle := func(ctx context.Context, r *op.Run) (bool, error) {
		s, err := specOf(r)
		if err != nil {
			return false, err
		}
		disk, err := e.readDisk(ctx, s)
		return err == nil && disk.ours(toDst, s) == nil, err
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

// stepAbortMirror ends the job before a cancel begins its own.
func (e *Env) stepAbortMirror() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.active && disk.mirror == nil && disk.live != s.Before() {
			return chainChanged(s, disk)
		}
		if _, err := disk.mirrorTo(toDst, s); err != nil && disk.ours(toSrc, s) == nil {
			return err
		}
		return e.endMirror(ctx, s, disk)
	}
	observe := func(ctx context.Context, r *op.Run, s *Spec) (op.Observation, error) {
		disk, err := e.confirmDiskOfPaused(ctx, s)
		if err != nil {
			return op.Unknown, e.endPauseOnDisagreement(ctx, r, s, toAbort, err)
		}
		// An active commit belongs to this cancel, from before a crash.
		return op.DoneIf(!disk.active || (disk.live == s.Before() && (disk.mirror == nil || disk.ours(toSrc, s) != nil))), nil
	}
	return step(abortStep, do, nil, observe)
}

const abortStep = "abort_mirror"

// endMirror ends the copy job if it exists and the guest does not run. The guest stays on its
// image.
func (e *Env) endMirror(ctx context.Context, s *Spec, disk *diskState) error {
	e.progress.clear(s.MigrationID)
	switch {
	case disk.ours(toDst, s) == nil:
		return e.endCatchUp(ctx, s)
	case disk.dom.State == hv.StateRunning:
		return &errWorldChanged{fmt.Sprintf("instance %s was resumed by somebody before the job on its disk was ended", s.InstanceName)}
	}
	if err := e.endCatchUp(ctx, s); err != nil { // the guest is paused
		return err
	}
	e.log.Info("ending the copy job of a migration", "migration", s.MigrationID, "volume", s.VolumeName, "guest", disk.dom.State)
	if err := e.hv.AbortJob(ctx, s.InstanceID, s.Target); err != nil {
		return e.hvError(err)
	}
	return notEnded(s)
}

// stepEndMirror ends our copy job. Other jobs and images on the disk do not matter.
func (e *Env) stepEndMirror() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return err
		}
		return e.endMirror(ctx, s, disk)
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(disk.ours(toDst, s) == nil), nil
	}
	return step(abortStep, do, nil, observe)
}
