// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// BeginStart starts an instance that is off. Like all Begin calls it returns the
// instance as soon as the op is admitted, or the refusal; the op with this id goes on by
// itself. A repeated request gets the same answer. InstanceRef
// is the instance's id, name or the beginning of its id.
func (m *Manager) BeginStart(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, kindStart, instanceRef, stopping{})
}

// BeginStop stops an instance: its guest is asked, and runs on (instance_busy) if it does
// not obey. With Force it is not asked.
func (m *Manager) BeginStop(ctx context.Context, opID, instanceRef string, in api.InstanceStop) (api.Instance, error) {
	return m.begin(ctx, opID, kindStop, instanceRef, stopping(in))
}

// BeginReboot asks the guest to reboot.
func (m *Manager) BeginReboot(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, kindReboot, instanceRef, stopping{})
}

// BeginPause makes a running instance stand still.
func (m *Manager) BeginPause(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, kindPause, instanceRef, stopping{})
}

// BeginUnpause lets a paused instance run.
func (m *Manager) BeginUnpause(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, kindUnpause, instanceRef, stopping{})
}

func (m *Manager) begin(ctx context.Context, opID, kind, ref string, how stopping) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: kind, Body: instanceBody{ref, how},
		Decide: func(ctx context.Context) (request.Input, error) {
			if err := how.check(); err != nil {
				return nil, err
			}
			inst, err := m.env.findInstance(ctx, ref)
			if err != nil {
				return nil, err
			}
			in := &powerInput{stopping: how}
			if in.subject, err = m.env.subjectOf(ctx, inst); err != nil {
				return nil, err
			}
			return in, m.env.checkPower(ctx, kind, in, inst)
		},
	})
}

// stepAdmitPower makes the checks once more, now that no other op works on the instance.
// A stop that finds the instance off is done: another stop went before it.
func (e *stepEnv) stepAdmitPower(kind string) op.Step {
	return step(stepNameAdmit, func(ctx context.Context, _ *op.Run, in *powerInput) error {
		if kind == kindStop {
			if dom, err := e.domain(ctx, in.InstanceID); err != nil || dom == nil || !dom.State.Active() {
				return err
			}
		}
		inst, err := e.findInstance(ctx, in.InstanceID)
		if err != nil {
			return request.Registry(err)
		}
		return e.checkPower(ctx, kind, in, inst)
	}, nil, nil)
}

func (e *stepEnv) stepStart() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *powerInput) error { return e.powerOn(ctx, &in.subject) }
	return step("power_on", do, nil, e.observeState(hv.State.Active))
}

func (e *stepEnv) stepStop() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *powerInput) error {
		return e.powerOff(ctx, &in.subject, in.stopping)
	}
	return step("power_off", do, nil, e.observeState(off))
}

func off(s hv.State) bool { return !s.Active() }

// stepReboot is one call: a guest that reboots looks as one that never did.
func (e *stepEnv) stepReboot() op.Step {
	return step("reboot", func(ctx context.Context, _ *op.Run, in *powerInput) error {
		return in.refusal("reboot", e.HV.RebootGuest(ctx, in.InstanceID))
	}, nil, nil)
}

func (e *stepEnv) stepPause() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *powerInput) error {
		return in.refusal("pause", e.HV.Suspend(ctx, in.InstanceID))
	}
	return step("suspend", do, nil, e.observeState(func(s hv.State) bool { return s == hv.StatePaused }))
}

func (e *stepEnv) stepUnpause() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *powerInput) error {
		if err := e.notSwitching(&in.subject, "unpause"); err != nil {
			return err
		}
		return in.refusal("unpause", e.HV.Resume(ctx, in.InstanceID))
	}
	return step("resume", do, nil, e.observeState(func(s hv.State) bool { return s == hv.StateRunning }))
}

// observeState observes the state of the domain; a domain that is gone is off.
func (e *stepEnv) observeState(as func(hv.State) bool) op.ObserveFunc[powerInput] {
	return func(ctx context.Context, _ *op.Run, in *powerInput) (op.Observation, error) {
		dom, err := e.domain(ctx, in.InstanceID)
		if err != nil {
			return op.Unknown, err
		}
		if dom == nil {
			return op.DoneIf(as(hv.StateStopped)), nil
		}
		return op.DoneIf(as(dom.State)), nil
	}
}
