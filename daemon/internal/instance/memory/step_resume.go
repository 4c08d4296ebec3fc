// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// StepStateBefore reads the instance's state before the migration, while no other op works on it.
func (e *Env) StepStateBefore() op.Step {
	return subject.Step(subject.StepNameSavedState, func(ctx context.Context, r *op.Run, in *PauseInput) error {
		was, err := e.suspendedState(ctx, in)
		if err != nil {
			return err
		}
		return r.SetOutput(was)
	}, nil, nil)
}

// StepRemoveSaveImage removes the save image and the guard before the guest runs; then only the
// process has the RAM. If the host lost the restored process, for example in a reboot, the guest
// has not run. Then the step restores the guest again, if the registry reports that no other guest
// of the volume was resumed.
func (e *Env) StepRemoveSaveImage() op.Step {
	do := func(ctx context.Context, r *op.Run, in *PauseInput) error {
		was, err := savedStateOf(r)
		if err != nil {
			return err
		}
		asleep, err := e.asleep(ctx, in)
		if err != nil {
			return err
		}
		if asleep {
			if _, err := e.wake(ctx, in, was); err != nil {
				return err
			}
		}
		if err := e.mayResume(ctx, in, was); err != nil {
			return err
		}
		if asleep, err = e.asleep(ctx, in); err != nil || asleep {
			return cmp.Or(err, op.Retry(request.BusyDelay, fmt.Errorf("instance %s was lost with its host as it was to go on", in.InstanceName)))
		}
		if err := removeSaveImage(in); err != nil {
			return err
		}
		return e.guards.Clear(in.InstanceID, in.Owner())
	}
	observe := func(_ context.Context, _ *op.Run, in *PauseInput) (op.Observation, error) {
		there, err := SaveImageExists(in)
		if err != nil || there {
			return op.NotDone, err
		}
		guarded, err := e.guards.Has(in.InstanceID, in.Owner())
		return op.DoneIf(!guarded), err
	}
	return subject.Step(StepNameRemoveSaveImage, do, nil, observe)
}

// StepResumeGuest resumes a guest that ran before the migration.
func (e *Env) StepResumeGuest() op.Step {
	do := func(ctx context.Context, r *op.Run, in *PauseInput) error {
		was, err := savedStateOf(r)
		if err != nil {
			return err
		}
		if err := e.mayResume(ctx, in, was); err != nil {
			return err
		}
		return e.resumeGuest(ctx, in, was)
	}
	observe := func(ctx context.Context, r *op.Run, in *PauseInput) (op.Observation, error) {
		was, err := savedStateOf(r)
		if err != nil {
			return op.Unknown, err
		}
		dom, err := e.subject.Domain(ctx, in.InstanceID)
		if err != nil || dom != nil && toBeResumed(dom, was) {
			return op.NotDone, err
		}
		e.unresumed.Runs(in.InstanceID)
		return op.Done, nil
	}
	return subject.Step(stepNameResume, do, nil, observe)
}
