// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/daemon/internal/witness"
)

// StepAdmitPower repeats the checks while no other op works on the instance.
func (e *Env) StepAdmitPower(kind string) op.Step {
	return subject.Step(subject.StepNameAdmit, func(ctx context.Context, _ *op.Run, in *subject.PowerInput) error {
		if kind == subject.KindStop {
			if dom, err := e.subject.Domain(ctx, in.InstanceID); err != nil || dom == nil || !dom.State.Active() {
				return err
			}
		}
		inst, err := e.subject.FindInstance(ctx, in.InstanceID)
		if err != nil {
			return request.Registry(err)
		}
		return e.CheckPower(ctx, kind, in, inst)
	}, nil, nil)
}

// StepStart starts the guest.
func (e *Env) StepStart() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *subject.PowerInput) error { return e.PowerOn(ctx, &in.Subject) }
	return subject.Step("power_on", do, nil, e.observeState(hv.State.Active))
}

// StepStop stops the guest.
func (e *Env) StepStop() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *subject.PowerInput) error {
		return e.PowerOff(ctx, &in.Subject, in.Stopping)
	}
	return subject.Step("power_off", do, nil, e.observeState(off))
}

func off(s hv.State) bool { return !s.Active() }

// StepReboot is one call without Observe: a rebooted guest looks like a guest that never rebooted.
func (e *Env) StepReboot() op.Step {
	return subject.Step("reboot", func(ctx context.Context, _ *op.Run, in *subject.PowerInput) error {
		return in.Refusal("reboot", e.power.RebootGuest(ctx, in.InstanceID))
	}, nil, nil)
}

// StepPause suspends the guest.
func (e *Env) StepPause() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *subject.PowerInput) error {
		return in.Refusal("pause", e.power.Suspend(ctx, in.InstanceID))
	}
	return subject.Step("suspend", do, nil, e.observeState(func(s hv.State) bool { return s == hv.StatePaused }))
}

// StepUnpause resumes the guest.
func (e *Env) StepUnpause() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *subject.PowerInput) error {
		if err := e.notSwitching(&in.Subject, "unpause"); err != nil {
			return err
		}
		return in.Refusal("unpause", e.power.Resume(ctx, in.InstanceID))
	}
	return subject.Step("resume", do, nil, e.observeState(func(s hv.State) bool { return s == hv.StateRunning }))
}

// callsEnd limits how long an attempt waits for unfinished calls of libvirt on the process.
var callsEnd = witness.Retry{Poll: 50 * time.Millisecond, Bound: 10 * time.Second}

// observeState observes whether wanted returns true for the domain's state; a missing domain is
// off. It waits while libvirt has an unfinished call on the process. If libvirtd died during a
// start, the restarted libvirtd shows the guest as active, before it kills the guest.
func (e *Env) observeState(wanted func(hv.State) bool) op.ObserveFunc[subject.PowerInput] {
	return func(ctx context.Context, _ *op.Run, in *subject.PowerInput) (op.Observation, error) {
		dom, err := witness.Agreed(ctx, callsEnd, in.InstanceName, func(ctx context.Context) (heard witness.Heard[*hv.Domain], err error) {
			heard.View, err = e.subject.Domain(ctx, in.InstanceID)
			heard.Occupied = heard.View != nil && heard.View.Occupied
			return heard, err
		})
		if err != nil {
			return op.Unknown, err
		}
		if dom == nil {
			return op.DoneIf(wanted(hv.StateStopped)), nil
		}
		return op.DoneIf(wanted(dom.State)), nil
	}
}
