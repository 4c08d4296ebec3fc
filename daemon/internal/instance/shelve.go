// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/shelf"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// BeginShelve stops an instance, stores its definition in the registry, and removes its domain
// from the host.
func (m *Manager) BeginShelve(ctx context.Context, opID, instanceRef string, how api.InstanceShelve) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: subject.KindShelve, Body: instanceBody{instanceRef, how},
		Decide: func(ctx context.Context) (request.Input, error) {
			in := &shelf.ShelveInput{Stopping: subject.Stopping{Force: how.Force, TimeoutSeconds: how.TimeoutSeconds}, Keep: how.KeepOnHost}
			if err := in.Stopping.Check(); err != nil {
				return nil, err
			}
			inst, err := m.ports.Registry.Instance(ctx, instanceRef)
			if err != nil {
				return nil, err
			}
			if in.Subject, err = m.env.Subject.SubjectOf(ctx, inst); err != nil {
				return nil, err
			}
			in.Whole, in.Was = true, inst.State == api.InstanceShelved
			return in, m.env.Shelf.CheckShelve(ctx, in, inst)
		},
	})
}
