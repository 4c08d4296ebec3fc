// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// BeginResume lets an instance that was suspended for a migration go on as it was:
// running, paused or off. The file of its RAM and its guard are gone before it runs.
func (g *Manager) BeginResume(ctx context.Context, opID, instanceRef string, in api.InstanceResume) (api.Instance, error) {
	return g.take(ctx, request.Request{
		OpID: opID, Kind: kindResume, Asked: asked{instanceRef, in},
		Decide: func(ctx context.Context) (request.Input, error) {
			input, err := g.machine.pauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
			if err != nil {
				return nil, err
			}
			input.Location = in.Location
			return input, nil
		},
	})
}

// stepBefore finds out what the instance was before the migration touched it, once no
// other op is at it.
func (g *Manager) stepBefore() op.Step {
	return step(stepNameRested, func(ctx context.Context, r *op.Run, in *pauseInput) error {
		was, err := g.before(ctx, in)
		if err != nil {
			return err
		}
		return r.SetOutput(was)
	}, nil, nil)
}

// stepForgetMemory removes the file, before the guest runs: what is in the process is
// the only RAM from then on, and there is nothing more to guard. A guest that was
// lost with its host since it was woken has not run: it is woken again, if no other one
// has run on.
func (m *machine) stepForgetMemory() op.Step {
	do := func(ctx context.Context, r *op.Run, in *pauseInput) error {
		was, err := wasOf(r)
		if err != nil {
			return err
		}
		asleep, err := m.asleep(ctx, in)
		if err != nil {
			return err
		}
		if asleep {
			if _, err := m.wake(ctx, in, was); err != nil {
				return err
			}
		}
		if err := m.mayGoOn(ctx, in, was); err != nil {
			return err
		}
		if asleep, err = m.asleep(ctx, in); err != nil || asleep {
			return cmp.Or(err, op.Retry(request.BusyDelay, fmt.Errorf("instance %s was lost with its host as it was to go on", in.InstanceName)))
		}
		if err := removeMemory(in); err != nil {
			return err
		}
		return m.Guards.Clear(in.InstanceID, in.owner())
	}
	observe := func(_ context.Context, _ *op.Run, in *pauseInput) (op.Observation, error) {
		there, err := memoryThere(in)
		if err != nil || there {
			return op.NotDone, err
		}
		guarded, err := m.Guards.Has(in.InstanceID, in.owner())
		return op.DoneIf(!guarded), err
	}
	return step(stepNameForgetMemory, do, nil, observe)
}

// mayGoOn asks whether a guest may run on that stands still, if it is to.
func (m *machine) mayGoOn(ctx context.Context, in *pauseInput, was rest) error {
	dom, err := m.domain(ctx, in.InstanceID)
	if err != nil || dom == nil || !waits(dom, was) {
		return err
	}
	return m.permit(ctx, in, api.PermitResume)
}

// stepGoOn lets a guest run that ran.
func (m *machine) stepGoOn() op.Step {
	do := func(ctx context.Context, r *op.Run, in *pauseInput) error {
		was, err := wasOf(r)
		if err != nil {
			return err
		}
		if err := m.mayGoOn(ctx, in, was); err != nil {
			return err
		}
		return m.goOn(ctx, in, was)
	}
	observe := func(ctx context.Context, r *op.Run, in *pauseInput) (op.Observation, error) {
		was, err := wasOf(r)
		if err != nil {
			return op.Unknown, err
		}
		dom, err := m.domain(ctx, in.InstanceID)
		return op.DoneIf(dom == nil || !waits(dom, was)), err
	}
	return step(stepNameGoOn, do, nil, observe)
}

// waits says whether a guest is paused by us that ran before.
func waits(dom *hv.Domain, was rest) bool {
	return was.State == hv.StateRunning && dom.State == hv.StatePaused && dom.PauseReason != hv.PauseIOError
}

func (m *machine) goOn(ctx context.Context, in *pauseInput, was rest) error {
	dom, err := m.domain(ctx, in.InstanceID)
	if err != nil || dom == nil || !waits(dom, was) {
		return err
	}
	err = m.HV.Resume(ctx, in.InstanceID)
	if errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
		return nil // it went off meanwhile
	}
	return request.HV(err)
}
