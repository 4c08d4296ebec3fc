// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

const (
	// askEvery is the interval of shutdown requests: a booting guest may ignore the first request.
	askEvery  = 10 * time.Second
	lookEvery = time.Second
)

// PowerOn starts the domain, unless it is guarded.
func (e *Env) PowerOn(ctx context.Context, s *subject.Subject) error {
	if err := e.movingGuests.MayStart(ctx, s.InstanceID); err != nil {
		return subject.RefusedFor("start", s.InstanceName, err)
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
	// QEMU opens the images by path, perhaps long after the op was admitted.
	atts, err := e.subject.RestingOf(ctx, s.InstanceID)
	if err != nil {
		return request.Registry(err)
	}
	if err := e.subject.OnItsDevices(ctx, "start", s.InstanceName, atts); err != nil {
		return err
	}
	return s.Refusal("start", e.power.PowerOn(ctx, s.InstanceID))
}

// connectDisks connects all images that the definition names: a reboot of the host disconnects the
// volumes of storage targets. They stay connected after a stop, for the next start.
func (e *Env) connectDisks(ctx context.Context, s *subject.Subject) error {
	dom, err := e.subject.Domain(ctx, s.InstanceID)
	if err != nil || dom == nil {
		return err // the start will report that
	}
	for i := range dom.Config {
		for _, img := range dom.Config[i].Chain {
			if err := location.Connect(ctx, e.devices, img.Path, "cannot start instance "+s.InstanceName); err != nil {
				return s.Refusal("start", err)
			}
		}
	}
	return nil
}

// PowerOff returns when the domain is off. A guest that does not shut down in time keeps running.
// If a stop with force is queued meanwhile, PowerOff cuts the power.
func (e *Env) PowerOff(ctx context.Context, s *subject.Subject, how subject.Stopping) error {
	if how.Force {
		return s.Refusal("stop", e.power.PowerOff(ctx, s.InstanceID))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := e.power.Events(ctx)
	over := time.NewTimer(how.Timeout())
	defer over.Stop()
	var asked time.Time
	for {
		dom, err := e.subject.Domain(ctx, s.InstanceID)
		switch {
		case err != nil:
			return err
		case dom == nil || !dom.State.Active():
			return nil
		case e.cutAskedFor(s):
			return s.Refusal("stop", e.power.PowerOff(ctx, s.InstanceID))
		case dom.State == hv.StatePaused:
			return inState(subject.KindStop, dom, s.InstanceName, false)
		}
		if asked.IsZero() || time.Since(asked) >= askEvery {
			asked = time.Now()
			if err := s.Refusal("stop", e.power.Shutdown(ctx, s.InstanceID)); err != nil {
				return err
			}
			continue // some guests are off at once
		}
		if more, err := hv.Await(ctx, events, s.InstanceID, lookEvery, over.C); err != nil {
			return err
		} else if !more {
			return api.Errorf(api.CodeInstanceBusy, "instance %s has not shut down within %s and runs on; it was asked to, and may still do so later: a guest that boots, or has no ACPI, does not hear it. "+
				"Wait and see (`%s`), ask it once more (`%s`), or cut its power (`%s`)",
				s.InstanceName, how.Timeout(), shell.Line("volferryctl", "instance", "show", s.InstanceName),
				shell.Line("volferryctl", "instance", "stop", s.InstanceName, "--timeout", "10m"), shell.Line("volferryctl", "instance", "stop", s.InstanceName, "--force"))
		}
	}
}

func (e *Env) cutAskedFor(s *subject.Subject) bool {
	return slices.ContainsFunc(e.runner.Active(), func(st op.Status) bool {
		if st.Op.Kind != subject.KindStop || st.Op.Group != s.InstanceID || st.State != op.StateRunning {
			return false
		}
		var in subject.PowerInput
		return json.Unmarshal(st.Op.Input, &in) == nil && in.Force
	})
}
