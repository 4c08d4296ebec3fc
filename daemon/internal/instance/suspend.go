// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

const stepNameSuspend = "suspend"

// CheckSave makes every check of BeginSuspend and BeginSave, and changes nothing.
func (g *Manager) CheckSave(ctx context.Context, instanceRef string, in api.InstanceSuspend) error {
	input, err := g.machine.pauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
	if err != nil {
		return err
	}
	_, err = g.maySuspend(ctx, input)
	return err
}

// BeginSuspend has an instance stand still for a migration that has locked it, and
// guards it, before any guest of the volume is saved. It stays so until BeginResume.
// One that does not run is guarded only.
func (g *Manager) BeginSuspend(ctx context.Context, opID, instanceRef string, in api.InstanceSuspend) (api.Instance, error) {
	return g.take(ctx, request.Request{
		OpID: opID, Kind: kindSuspend, Asked: asked{instanceRef, in},
		Decide: func(ctx context.Context) (request.Input, error) {
			input, err := g.machine.pauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
			if err != nil {
				return nil, err
			}
			_, err = g.maySuspend(ctx, input)
			return input, err
		},
	})
}

// maySuspend is maySave for an instance that is not suspended yet.
func (g *Manager) maySuspend(ctx context.Context, in *pauseInput) (before rest, err error) {
	if yes, err := g.awoken(ctx, in); err != nil || yes {
		return before, errors.Join(err, lateSave(in, yes))
	}
	if before, err = g.suspended(ctx, in); err != nil {
		return before, err
	}
	return before, g.machine.maySaveNow(ctx, in)
}

// admitSuspend looks once more, now that no other op is at the instance. Its output is
// what an op before this one found it to be.
func (g *Manager) admitSuspend(ctx context.Context, r *op.Run, in *pauseInput) error {
	inst, err := g.machine.Registry.Instance(ctx, in.InstanceID)
	if err != nil {
		return request.Registry(err)
	}
	if err := lockedFor(inst, in.MigrationID); err != nil {
		return err
	}
	before, err := g.maySuspend(ctx, in)
	if err != nil {
		return err
	}
	return r.SetOutput(before)
}

// stepSuspend has the guest stand still. What it was is noted before. QEMU has finished
// and flushed what the guest had asked for when it answers.
func (m *machine) stepSuspend() op.Step {
	do := func(ctx context.Context, r *op.Run, in *pauseInput) error {
		dom, err := m.pausedDomain(ctx, in)
		if err != nil {
			return err
		}
		first, err := before(r)
		if err != nil {
			return err
		}
		if noted, err := r.Noted(stepNameSuspend, &rest{}); err != nil {
			return err
		} else if !noted {
			if err := r.Note(ctx, cmp.Or(first, restOf(dom))); err != nil {
				return err
			}
		}
		if dom.State != hv.StateRunning {
			return nil
		}
		if err := m.permit(ctx, in, api.PermitSuspend); err != nil {
			return err
		}
		err = m.HV.Suspend(ctx, in.InstanceID)
		if errors.Is(err, hv.ErrNotActive) {
			return nil // it went off
		}
		return request.HV(err)
	}
	undo := func(ctx context.Context, r *op.Run, in *pauseInput) error {
		var was rest
		if noted, err := r.Noted(stepNameSuspend, &was); err != nil || !noted {
			return err
		}
		if first, err := before(r); err != nil || first.State != "" {
			return err
		}
		return m.goOn(ctx, in, was)
	}
	observe := func(ctx context.Context, r *op.Run, in *pauseInput) (op.Observation, error) {
		var was rest
		noted, err := r.Noted(stepNameSuspend, &was)
		if err != nil || !noted {
			return op.NotDone, err
		}
		dom, err := m.pausedDomain(ctx, in)
		if err != nil || dom.State == hv.StateRunning || dom.State == hv.StateOther {
			return op.NotDone, err
		}
		return op.Done, r.SetOutput(was)
	}
	return step(stepNameSuspend, do, undo, observe)
}

// permit asks the registry, which is waited for, whether the move still wants what is
// about to be done: between two guests of a volume only it knows which has run on. Each
// question has an id of its own, for yesterday's answer is worth nothing.
func (m *machine) permit(ctx context.Context, in *pauseInput, to string) error {
	host, err := m.host(ctx) // as it is now: it may have rejoined since the op began
	if err != nil {
		return err
	}
	_, err = m.Registry.PermitPause(ctx, uuid.NewString(), in.MigrationID, api.PausePermit{InstanceID: in.InstanceID, To: to, Host: host.ID, Epoch: host.Epoch})
	return request.Registry(err)
}
