// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// BeginStart starts an instance that is off. Every Begin method returns the instance once the op
// is admitted, or the refusal; the op with this id continues by itself. A repeated request gets
// the same answer. instanceRef is an id, its beginning, or a name.
func (m *Manager) BeginStart(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, subject.KindStart, instanceRef, subject.Stopping{})
}

// BeginStop stops an instance. A guest that does not shut down in time keeps running
// (instance_busy). Force cuts the power.
func (m *Manager) BeginStop(ctx context.Context, opID, instanceRef string, in api.InstanceStop) (api.Instance, error) {
	return m.begin(ctx, opID, subject.KindStop, instanceRef, subject.Stopping(in))
}

// BeginReboot asks the guest to reboot.
func (m *Manager) BeginReboot(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, subject.KindReboot, instanceRef, subject.Stopping{})
}

// BeginPause pauses a running instance.
func (m *Manager) BeginPause(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, subject.KindPause, instanceRef, subject.Stopping{})
}

// BeginUnpause resumes a paused instance.
func (m *Manager) BeginUnpause(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, subject.KindUnpause, instanceRef, subject.Stopping{})
}

func (m *Manager) begin(ctx context.Context, opID, kind, ref string, how subject.Stopping) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: kind, Body: instanceBody{ref, how},
		Decide: func(ctx context.Context) (request.Input, error) {
			if err := how.Check(); err != nil {
				return nil, err
			}
			inst, err := m.env.Subject.FindInstance(ctx, ref)
			if err != nil {
				return nil, err
			}
			in := &subject.PowerInput{Stopping: how}
			if in.Subject, err = m.env.Subject.SubjectOf(ctx, inst); err != nil {
				return nil, err
			}
			return in, m.env.Power.CheckPower(ctx, kind, in, inst)
		},
	})
}
