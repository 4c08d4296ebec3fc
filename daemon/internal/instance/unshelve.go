// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/shelf"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// BeginUnshelve brings a shelved instance to this host. Another op (api.StartOp) then starts it.
func (m *Manager) BeginUnshelve(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: subject.KindUnshelve, Body: instanceBody{Instance: instanceRef},
		Decide: func(ctx context.Context) (request.Input, error) {
			inst, err := m.ports.Registry.Instance(ctx, instanceRef)
			if err != nil {
				return nil, err
			}
			in := &shelf.UnshelveInput{}
			if in.Subject, err = m.env.Subject.SubjectOf(ctx, inst); err != nil {
				return nil, err
			}
			in.Whole = true
			return in, m.env.Shelf.CheckUnshelve(ctx, inst)
		},
	}, shelf.StepNameClaim)
}
