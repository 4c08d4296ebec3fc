// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// CheckSave makes every check of BeginSuspend and BeginSave, and changes nothing.
func (m *Manager) CheckSave(ctx context.Context, instanceRef string, in api.InstanceSuspend) error {
	input, err := m.env.pauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
	if err != nil {
		return err
	}
	_, err = m.maySuspend(ctx, input)
	return err
}

// BeginSuspend suspends and guards an instance for a migration that has locked it, before
// any guest of the volume is saved. It stays suspended until BeginResume. An instance that
// does not run is guarded only.
func (m *Manager) BeginSuspend(ctx context.Context, opID, instanceRef string, in api.InstanceSuspend) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: kindSuspend, Body: instanceBody{instanceRef, in},
		Decide: func(ctx context.Context) (request.Input, error) {
			input, err := m.env.pauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
			if err != nil {
				return nil, err
			}
			_, err = m.maySuspend(ctx, input)
			return input, err
		},
	})
}

// maySuspend is maySave for an instance that is not suspended yet.
func (m *Manager) maySuspend(ctx context.Context, in *pauseInput) (before savedState, err error) {
	if yes, err := m.wakeRequested(ctx, in); err != nil || yes {
		return before, errors.Join(err, saveTooLate(in, yes))
	}
	if before, err = m.suspendedState(ctx, in); err != nil {
		return before, err
	}
	return before, m.env.maySaveNow(ctx, in)
}

// admitSuspend makes the checks once more, now that no other op works on the instance.
// Its output is what an earlier op found the instance to be.
func (m *Manager) admitSuspend(ctx context.Context, r *op.Run, in *pauseInput) error {
	inst, err := m.env.Registry.Instance(ctx, in.InstanceID)
	if err != nil {
		return request.Registry(err)
	}
	if err := lockedFor(inst, in.MigrationID); err != nil {
		return err
	}
	before, err := m.maySuspend(ctx, in)
	if err != nil {
		return err
	}
	return r.SetOutput(before)
}

// stepSuspend suspends the guest. What the instance was is noted before. When QEMU answers
// it has finished and flushed what the guest had asked for.
func (e *stepEnv) stepSuspend() op.Step {
	do := func(ctx context.Context, r *op.Run, in *pauseInput) error {
		dom, err := e.pausedDomain(ctx, in)
		if err != nil {
			return err
		}
		first, err := admittedState(r)
		if err != nil {
			return err
		}
		if noted, err := r.Noted(stepNameSuspend, &savedState{}); err != nil {
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
		err = e.HV.Suspend(ctx, in.InstanceID)
		if errors.Is(err, hv.ErrNotActive) {
			return nil // it went off
		}
		return request.HV(err)
	}
	undo := func(ctx context.Context, r *op.Run, in *pauseInput) error {
		var was savedState
		if noted, err := r.Noted(stepNameSuspend, &was); err != nil || !noted {
			return err
		}
		if first, err := admittedState(r); err != nil || first.State != "" {
			return err
		}
		return e.resumeGuest(ctx, in, was)
	}
	observe := func(ctx context.Context, r *op.Run, in *pauseInput) (op.Observation, error) {
		var was savedState
		noted, err := r.Noted(stepNameSuspend, &was)
		if err != nil || !noted {
			return op.NotDone, err
		}
		dom, err := e.pausedDomain(ctx, in)
		if err != nil || dom.State == hv.StateRunning || dom.State == hv.StateOther {
			return op.NotDone, err
		}
		return op.Done, r.SetOutput(was)
	}
	return step(stepNameSuspend, do, undo, observe)
}
