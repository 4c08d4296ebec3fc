// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// CheckSuspend makes the checks of a suspend, and of the following save, that change nothing. If
// an earlier op has suspended the instance, before is its state before that suspend.
func (e *Env) CheckSuspend(ctx context.Context, in *PauseInput) (before SavedState, err error) {
	if yes, err := e.wakeRequested(ctx, in); err != nil || yes {
		return before, errors.Join(err, saveTooLate(in, yes))
	}
	if before, err = e.suspendedState(ctx, in); err != nil {
		return before, err
	}
	if err := e.maySaveNow(ctx, in); err != nil {
		return before, err
	}
	return before, e.checkRoomForAll(ctx, in)
}

// AdmitSuspend repeats the checks while no other op works on the instance. Its output is
// CheckSuspend's result.
func (e *Env) AdmitSuspend(ctx context.Context, r *op.Run, in *PauseInput) error {
	inst, err := e.registry.Instance(ctx, in.InstanceID)
	if err != nil {
		return request.Registry(err)
	}
	if err := lockedFor(inst, in.MigrationID); err != nil {
		return err
	}
	before, err := e.CheckSuspend(ctx, in)
	if err != nil {
		return err
	}
	return r.SetOutput(before)
}

// StepSuspend records the guest's state and suspends the guest. When QEMU answers, it has
// completed and flushed the guest's requests.
func (e *Env) StepSuspend() op.Step {
	do := func(ctx context.Context, r *op.Run, in *PauseInput) error {
		dom, err := e.pausedDomain(ctx, in)
		if err != nil {
			return err
		}
		first, err := admittedState(r)
		if err != nil {
			return err
		}
		if noted, err := r.Noted(subject.StepNameSuspend, &SavedState{}); err != nil {
			return err
		} else if !noted {
			if err := r.Note(ctx, cmp.Or(first, stateOf(dom))); err != nil {
				return err
			}
		}
		if dom.State != hv.StateRunning {
			return nil
		}
		if err := e.permit(ctx, in, api.PermitSuspend); err != nil {
			return err
		}
		err = e.guests.Suspend(ctx, in.InstanceID)
		if errors.Is(err, hv.ErrNotActive) {
			return nil // it powered off
		}
		return request.HV(err)
	}
	undo := func(ctx context.Context, r *op.Run, in *PauseInput) error {
		var was SavedState
		if noted, err := r.Noted(subject.StepNameSuspend, &was); err != nil || !noted {
			return err
		}
		if first, err := admittedState(r); err != nil || first.State != "" {
			return err
		}
		return e.resumeGuest(ctx, in, was)
	}
	observe := func(ctx context.Context, r *op.Run, in *PauseInput) (op.Observation, error) {
		var was SavedState
		noted, err := r.Noted(subject.StepNameSuspend, &was)
		if err != nil || !noted {
			return op.NotDone, err
		}
		dom, err := e.pausedDomain(ctx, in)
		if err != nil || dom.State == hv.StateRunning || dom.State == hv.StateOther {
			return op.NotDone, err
		}
		return op.Done, r.SetOutput(was)
	}
	return subject.Step(subject.StepNameSuspend, do, undo, observe)
}
