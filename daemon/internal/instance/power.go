// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// BeginStart starts an instance that is off. Every Begin method returns the instance once the op is
// admitted, or the refusal; the op with this id continues on its own. A repeated request gets the
// same answer. InstanceRef is the instance's id, name, or the beginning of its id.
func (m *Manager) BeginStart(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, steps.KindStart, instanceRef, steps.Stopping{})
}

// BeginStop stops an instance. A guest that does not shut down in time keeps running
// (instance_busy). With Force the power is cut.
func (m *Manager) BeginStop(ctx context.Context, opID, instanceRef string, in api.InstanceStop) (api.Instance, error) {
	return m.begin(ctx, opID, steps.KindStop, instanceRef, steps.Stopping(in))
}

// BeginReboot asks the guest to reboot.
func (m *Manager) BeginReboot(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, steps.KindReboot, instanceRef, steps.Stopping{})
}

// BeginPause pauses a running instance.
func (m *Manager) BeginPause(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, steps.KindPause, instanceRef, steps.Stopping{})
}

// BeginUnpause lets a paused instance run.
func (m *Manager) BeginUnpause(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.begin(ctx, opID, steps.KindUnpause, instanceRef, steps.Stopping{})
}

func (m *Manager) begin(ctx context.Context, opID, kind, ref string, how steps.Stopping) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: kind, Body: instanceBody{ref, how},
		Decide: func(ctx context.Context) (request.Input, error) {
			if err := how.Check(); err != nil {
				return nil, err
			}
			inst, err := m.env.FindInstance(ctx, ref)
			if err != nil {
				return nil, err
			}
			in := &steps.PowerInput{Stopping: how}
			if in.Subject, err = m.env.SubjectOf(ctx, inst); err != nil {
				return nil, err
			}
			return in, m.env.CheckPower(ctx, kind, in, inst)
		},
	})
}
