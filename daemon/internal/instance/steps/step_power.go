// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/op"
)

// stepAdmitPower repeats the checks while no other op works on the instance. A stop of an instance
// that is off succeeds.
func (e *Env) stepAdmitPower(kind string) op.Step {
	return step(StepNameAdmit, func(ctx context.Context, _ *op.Run, in *PowerInput) error {
		if kind == KindStop {
			if dom, err := e.domain(ctx, in.InstanceID); err != nil || dom == nil || !dom.State.Active() {
				return err
			}
		}
		inst, err := e.FindInstance(ctx, in.InstanceID)
		if err != nil {
			return request.Registry(err)
		}
		return e.CheckPower(ctx, kind, in, inst)
	}, nil, nil)
}

func (e *Env) stepStart() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *PowerInput) error { return e.powerOn(ctx, &in.Subject) }
	return step("power_on", do, nil, e.observeState(hv.State.Active))
}

func (e *Env) stepStop() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *PowerInput) error {
		return e.powerOff(ctx, &in.Subject, in.Stopping)
	}
	return step("power_off", do, nil, e.observeState(off))
}

func off(s hv.State) bool { return !s.Active() }

// stepReboot is one call. It cannot be observed: a rebooting guest looks like a guest that never
// rebooted.
func (e *Env) stepReboot() op.Step {
	return step("reboot", func(ctx context.Context, _ *op.Run, in *PowerInput) error {
		return in.refusal("reboot", e.HV.RebootGuest(ctx, in.InstanceID))
	}, nil, nil)
}

func (e *Env) stepPause() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *PowerInput) error {
		return in.refusal("pause", e.HV.Suspend(ctx, in.InstanceID))
	}
	return step("suspend", do, nil, e.observeState(func(s hv.State) bool { return s == hv.StatePaused }))
}

func (e *Env) stepUnpause() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *PowerInput) error {
		if err := e.notSwitching(&in.Subject, "unpause"); err != nil {
			return err
		}
		return in.refusal("unpause", e.HV.Resume(ctx, in.InstanceID))
	}
	return step("resume", do, nil, e.observeState(func(s hv.State) bool { return s == hv.StateRunning }))
}

// callsEnd bounds how long one attempt waits for the end of a libvirt call on a process.
var callsEnd = witness.Retry{Poll: 50 * time.Millisecond, Bound: 10 * time.Second}

// observeState observes the state of the domain; a missing domain is off. It waits while a call on
// the process is under way: after its libvirtd has died in a start, the guest is reported until
// libvirtd has ended the start.
func (e *Env) observeState(as func(hv.State) bool) op.ObserveFunc[PowerInput] {
	return func(ctx context.Context, _ *op.Run, in *PowerInput) (op.Observation, error) {
		dom, err := witness.Agreed(ctx, callsEnd, in.InstanceName, func(ctx context.Context) (heard witness.Heard[*hv.Domain], err error) {
			heard.View, err = e.domain(ctx, in.InstanceID)
			heard.Occupied = heard.View != nil && heard.View.Occupied
			return heard, err
		})
		if err != nil {
			return op.Unknown, err
		}
		if dom == nil {
			return op.DoneIf(as(hv.StateStopped)), nil
		}
		return op.DoneIf(as(dom.State)), nil
	}
}
