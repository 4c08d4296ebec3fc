// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

const (
	// askEvery is the interval between shutdown requests to a guest: a booting guest may ignore the
	// first request.
	askEvery = 10 * time.Second
	// lookEvery is the interval between reads of the domain without an event.
	lookEvery = time.Second
)

// powerOn starts the domain, unless it is guarded.
func (e *Env) powerOn(ctx context.Context, s *Subject) error {
	if err := e.MovingGuests.MayStart(ctx, s.InstanceID); err != nil {
		return refusedFor("start", s.InstanceName, err)
	}
	if err := e.notGuarded(ctx, s); err != nil {
		return err
	}
	if err := e.clearStaleGuards(ctx, s); err != nil {
		return err
	}
	if err := e.connectDisks(ctx, s); err != nil {
		return err
	}
	// QEMU opens the images by path, and this call may come long after the op was admitted.
	atts, err := e.restingOf(ctx, s.InstanceID)
	if err != nil {
		return request.Registry(err)
	}
	if err := e.onItsDevices(ctx, "start", s.InstanceName, atts); err != nil {
		return err
	}
	return s.refusal("start", e.HV.PowerOn(ctx, s.InstanceID))
}

// connectDisks connects the defined images of targets, because after a boot of the host none is
// connected. They stay connected when the instance stops, so that it can be started at any time.
func (e *Env) connectDisks(ctx context.Context, s *Subject) error {
	dom, err := e.domain(ctx, s.InstanceID)
	if err != nil || dom == nil {
		return err // the start will report that
	}
	for i := range dom.Config {
		for _, img := range dom.Config[i].Chain {
			if err := location.Connect(ctx, e.HV, img.Path, "cannot start instance "+s.InstanceName); err != nil {
				return s.refusal("start", err)
			}
		}
	}
	return nil
}

// powerOff returns when the domain is off. A guest that does not shut down in time keeps running.
// If a stop with force is queued, the power is cut at once.
func (e *Env) powerOff(ctx context.Context, s *Subject, how Stopping) error {
	if how.Force {
		return s.refusal("stop", e.HV.PowerOff(ctx, s.InstanceID))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := e.HV.Events(ctx)
	over := time.NewTimer(how.timeout())
	defer over.Stop()
	var asked time.Time
	for {
		dom, err := e.domain(ctx, s.InstanceID)
		switch {
		case err != nil:
			return err
		case dom == nil || !dom.State.Active():
			return nil
		case e.cutAskedFor(s):
			return s.refusal("stop", e.HV.PowerOff(ctx, s.InstanceID))
		case dom.State == hv.StatePaused:
			return inState(KindStop, dom, s.InstanceName, false)
		}
		if asked.IsZero() || time.Since(asked) >= askEvery {
			asked = time.Now()
			if err := s.refusal("stop", e.HV.Shutdown(ctx, s.InstanceID)); err != nil {
				return err
			}
			continue // some guests are off at once
		}
		if more, err := hv.Await(ctx, events, s.InstanceID, lookEvery, over.C); err != nil {
			return err
		} else if !more {
			return api.Errorf(api.CodeInstanceBusy, "instance %s has not shut down within %s and runs on; it was asked to, and may still do so later: a guest that boots, or has no ACPI, does not hear it. "+
				"Wait and see (`%s`), ask it once more (`%s`), or cut its power (`%s`)",
				s.InstanceName, how.timeout(), api.ShellLine("volferryctl", "instance", "show", s.InstanceName),
				api.ShellLine("volferryctl", "instance", "stop", s.InstanceName, "--timeout", "10m"), api.ShellLine("volferryctl", "instance", "stop", s.InstanceName, "--force"))
		}
	}
}

// cutAskedFor reports whether a stop with force is queued for the instance.
func (e *Env) cutAskedFor(s *Subject) bool {
	return slices.ContainsFunc(e.runner.Active(), func(st op.Status) bool {
		if st.Op.Kind != KindStop || st.Op.Group != s.InstanceID || st.State != op.StateRunning {
			return false
		}
		var in PowerInput
		return json.Unmarshal(st.Op.Input, &in) == nil && in.Force
	})
}
