// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// BeginShelve puts an instance away: it is stopped, the registry gets what this host
// knows of it, and it leaves the host.
func (m *Manager) BeginShelve(ctx context.Context, opID, instanceRef string, how api.InstanceShelve) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: kindShelve, Body: instanceBody{instanceRef, how},
		Decide: func(ctx context.Context) (request.Input, error) {
			in := &shelveInput{stopping: stopping{how.Force, how.TimeoutSeconds}, Keep: how.KeepOnHost}
			if err := in.stopping.check(); err != nil {
				return nil, err
			}
			inst, err := m.env.Registry.Instance(ctx, instanceRef)
			if err != nil {
				return nil, err
			}
			if in.subject, err = m.env.subjectOf(ctx, inst); err != nil {
				return nil, err
			}
			in.Whole, in.Was = true, inst.State == api.InstanceShelved
			return in, m.env.mayShelve(ctx, in, inst)
		},
	})
}

// stepAdmitShelve makes the checks once more, now that no other op works on the instance.
func (e *stepEnv) stepAdmitShelve() op.Step {
	return step(stepNameAdmit, func(ctx context.Context, _ *op.Run, in *shelveInput) error {
		inst, err := e.Registry.Instance(ctx, in.InstanceID)
		if err != nil {
			return request.Registry(err)
		}
		return e.mayShelve(ctx, in, inst)
	}, nil, nil)
}
