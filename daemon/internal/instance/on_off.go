// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

const (
	// askEvery is how often a guest is asked again to shut down: one that boots may
	// not have heard the first time.
	askEvery = 10 * time.Second
	// lookEvery is how often the domain is looked at without an event.
	lookEvery = time.Second
)

// powerOn starts the domain, unless it is guarded.
func (m *machine) powerOn(ctx context.Context, s *subject) error {
	if err := m.Migrations.MayStart(ctx, s.InstanceID); err != nil {
		return refusedStart("start", s.InstanceName, err)
	}
	if err := m.notGuarded(ctx, s); err != nil {
		return err
	}
	if err := m.clearLeft(ctx, s); err != nil {
		return err
	}
	return s.refusal("start", m.HV.PowerOn(ctx, s.InstanceID))
}

// powerOff returns when the domain is off. A guest that is asked and does not obey in
// time runs on. Its power is cut as soon as somebody asks for that: he has to wait for
// his turn behind this op, and the guest may never answer.
func (m *machine) powerOff(ctx context.Context, s *subject, how stopping) error {
	if how.Force {
		return s.refusal("stop", m.HV.PowerOff(ctx, s.InstanceID))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := m.HV.Events(ctx)
	over := time.NewTimer(how.timeout())
	defer over.Stop()
	var asked time.Time
	for {
		dom, err := m.domain(ctx, s.InstanceID)
		switch {
		case err != nil:
			return err
		case dom == nil || !dom.State.Active():
			return nil
		case m.cutAskedFor(s):
			return s.refusal("stop", m.HV.PowerOff(ctx, s.InstanceID))
		case dom.State == hv.StatePaused:
			return inState(kindStop, dom, s.InstanceName, false)
		}
		if asked.IsZero() || time.Since(asked) >= askEvery {
			asked = time.Now()
			if err := s.refusal("stop", m.HV.Shutdown(ctx, s.InstanceID)); err != nil {
				return err
			}
			continue // some are off at once
		}
		if more, err := hv.Await(ctx, events, s.InstanceID, lookEvery, over.C); err != nil {
			return err
		} else if !more {
			return api.Errorf(api.CodeInstanceBusy, "instance %s did not shut down within %s and runs on; a guest that boots, or has no ACPI, does not answer: try again, or use --force, which is a power cut",
				s.InstanceName, how.timeout())
		}
	}
}

// cutAskedFor says whether an op waits that is to cut the power of the instance.
func (m *machine) cutAskedFor(s *subject) bool {
	return slices.ContainsFunc(m.active(), func(st op.Status) bool {
		if st.Op.Kind != kindStop || st.Op.Group != s.InstanceID || st.State != op.StateRunning {
			return false
		}
		var in powerInput
		return json.Unmarshal(st.Op.Input, &in) == nil && in.Force
	})
}
