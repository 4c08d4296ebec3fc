// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// powerInput is the input of every op that only changes whether an instance runs.
type powerInput struct {
	subject
	stopping
}

// stopping is how an instance is brought to be off.
type stopping struct {
	// Force does not ask the guest: it is a power cut.
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

const defaultStopTimeout = 120 * time.Second

// timeout is how long the guest has to obey.
func (s stopping) timeout() time.Duration {
	return cmp.Or(time.Duration(s.TimeoutSeconds)*time.Second, defaultStopTimeout)
}

func (s stopping) check() error {
	return api.InstanceStop(s).Check()
}

// BeginStart starts an instance that is off. Like all Begin calls it returns the
// instance as soon as it is known that the op may be, or with the refusal; the op
// with this id goes on by itself. A repeated request gets the same answer. InstanceRef
// is the instance's id, name or the beginning of its id.
func (g *Manager) BeginStart(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return g.begin(ctx, opID, kindStart, instanceRef, stopping{})
}

// BeginStop brings an instance to be off: its guest is asked, and one that does not
// obey runs on (instance_busy), or is not asked, with Force.
func (g *Manager) BeginStop(ctx context.Context, opID, instanceRef string, in api.InstanceStop) (api.Instance, error) {
	return g.begin(ctx, opID, kindStop, instanceRef, stopping(in))
}

// BeginReboot asks the guest to reboot.
func (g *Manager) BeginReboot(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return g.begin(ctx, opID, kindReboot, instanceRef, stopping{})
}

// BeginPause makes a running instance stand still.
func (g *Manager) BeginPause(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return g.begin(ctx, opID, kindPause, instanceRef, stopping{})
}

// BeginUnpause lets a paused instance run.
func (g *Manager) BeginUnpause(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return g.begin(ctx, opID, kindUnpause, instanceRef, stopping{})
}

// asked is a request as it was made.
type asked struct {
	Instance string `json:"instance"`
	In       any    `json:"in,omitempty"`
}

func (g *Manager) begin(ctx context.Context, opID, kind, ref string, how stopping) (api.Instance, error) {
	return g.take(ctx, request.Request{
		OpID: opID, Kind: kind, Asked: asked{ref, how},
		Decide: func(ctx context.Context) (request.Input, error) {
			if err := how.check(); err != nil {
				return nil, err
			}
			inst, err := g.machine.find(ctx, ref)
			if err != nil {
				return nil, err
			}
			in := &powerInput{stopping: how}
			if in.subject, err = g.machine.subjectOf(ctx, inst); err != nil {
				return nil, err
			}
			return in, g.machine.may(ctx, kind, in, inst)
		},
	})
}

// take brings a request to where it is granted, and returns the instance. Asks are
// the steps besides the first that somebody may refuse.
func (g *Manager) take(ctx context.Context, req request.Request, asks ...string) (api.Instance, error) {
	o, err := g.desk.Submit(ctx, req)
	if err != nil {
		return api.Instance{}, err
	}
	var s subject
	if err := json.Unmarshal(o.Input, &s); err != nil {
		return api.Instance{}, fmt.Errorf("read op %s: %w", o.ID, err)
	}
	st, err := g.desk.Granted(ctx, o.ID, append(asks, stepNameAdmit)...)
	// A save that was admitted is no refusal, whatever became of it: it may have left the
	// guest at rest. Its op tells.
	if _, admitted := st.Outputs[stepNameAdmit]; err != nil && !admitted {
		return api.Instance{}, err
	}
	return g.machine.now(ctx, &s), nil
}

func (m *machine) powerPlans() []op.Plan {
	plan := func(kind string, does op.Step) op.Plan {
		return op.Plan{Kind: kind, Commit: does.Name, Steps: []op.Step{m.stepMay(kind), does, m.stepReport()}}
	}
	return []op.Plan{
		plan(kindStart, m.stepStart()),
		plan(kindStop, m.stepStop()),
		plan(kindReboot, m.stepReboot()),
		plan(kindPause, m.stepPause()),
		plan(kindUnpause, m.stepUnpause()),
	}
}

// stepMay looks once more, now that no other op is at it, whether the op may be. A stop
// that finds the instance off has what it was asked for: another one went before it.
func (m *machine) stepMay(kind string) op.Step {
	return step(stepNameAdmit, func(ctx context.Context, _ *op.Run, in *powerInput) error {
		if kind == kindStop {
			if dom, err := m.domain(ctx, in.InstanceID); err != nil || dom == nil || !dom.State.Active() {
				return err
			}
		}
		inst, err := m.find(ctx, in.InstanceID)
		if err != nil {
			return request.Registry(err)
		}
		return m.may(ctx, kind, in, inst)
	}, nil, nil)
}

func (m *machine) stepStart() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *powerInput) error { return m.powerOn(ctx, &in.subject) }
	return step("power_on", do, nil, m.seen(hv.State.Active))
}

func (m *machine) stepStop() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *powerInput) error {
		return m.powerOff(ctx, &in.subject, in.stopping)
	}
	return step("power_off", do, nil, m.seen(off))
}

func off(s hv.State) bool { return !s.Active() }

// stepReboot is one call: a guest that reboots looks as one that never did.
func (m *machine) stepReboot() op.Step {
	return step("reboot", func(ctx context.Context, _ *op.Run, in *powerInput) error {
		return in.refusal("reboot", m.HV.RebootGuest(ctx, in.InstanceID))
	}, nil, nil)
}

func (m *machine) stepPause() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *powerInput) error {
		return in.refusal("pause", m.HV.Suspend(ctx, in.InstanceID))
	}
	return step("suspend", do, nil, m.seen(func(s hv.State) bool { return s == hv.StatePaused }))
}

func (m *machine) stepUnpause() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *powerInput) error {
		if err := m.notSwitching(&in.subject, "unpause"); err != nil {
			return err
		}
		return in.refusal("unpause", m.HV.Resume(ctx, in.InstanceID))
	}
	return step("resume", do, nil, m.seen(func(s hv.State) bool { return s == hv.StateRunning }))
}

// seen observes the state of the domain; one that is gone is off.
func (m *machine) seen(as func(hv.State) bool) op.ObserveFunc[powerInput] {
	return func(ctx context.Context, _ *op.Run, in *powerInput) (op.Observation, error) {
		dom, err := m.domain(ctx, in.InstanceID)
		if err != nil {
			return op.Unknown, err
		}
		if dom == nil {
			return op.DoneIf(as(hv.StateStopped)), nil
		}
		return op.DoneIf(as(dom.State)), nil
	}
}
