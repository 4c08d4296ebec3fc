// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// BeginUnshelve brings a shelved instance to this host. When the op is done it is
// stopped, and another op (api.StartOp) starts it.
func (m *Manager) BeginUnshelve(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: kindUnshelve, Body: instanceBody{Instance: instanceRef},
		Decide: func(ctx context.Context) (request.Input, error) {
			inst, err := m.env.Registry.Instance(ctx, instanceRef)
			if err != nil {
				return nil, err
			}
			in := &unshelveInput{}
			if in.subject, err = m.env.subjectOf(ctx, inst); err != nil {
				return nil, err
			}
			in.Whole = true
			return in, m.env.mayUnshelve(ctx, inst)
		},
	}, stepNameClaim)
}

// StartOf is the id of the op that starts the instance that an unshelve brought back.
func StartOf(unshelveOpID string) string { return api.StartOp(unshelveOpID) }

func (e *stepEnv) stepAdmitUnshelve() op.Step {
	return step(stepNameAdmit, func(ctx context.Context, _ *op.Run, in *unshelveInput) error {
		inst, err := e.Registry.Instance(ctx, in.InstanceID)
		if err != nil {
			return request.Registry(err)
		}
		return e.mayUnshelve(ctx, inst)
	}, nil, nil)
}

func (e *stepEnv) mayUnshelve(ctx context.Context, inst api.Instance) error {
	const verb = "unshelve"
	switch {
	case !inst.State.OnShelf():
		return forbidden(verb, inst.Name, "it is %s", inst.State)
	case inst.Locked:
		return locked(verb, inst)
	case inst.LacksRoot():
		return noRoot(verb, inst.Name)
	}
	dom, err := e.domain(ctx, inst.ID)
	switch {
	case err != nil:
		return err
	case dom != nil && inst.State == api.InstanceShelvedOffloaded:
		return api.Errorf(api.CodeConflict, "cannot unshelve instance %s: this host has a domain %s with its id, which is not what is on the shelf; look at it, and undefine it (virsh undefine --keep-nvram %s)", inst.Name, dom.Name, dom.Name)
	case dom != nil && dom.State.Active():
		return forbidden(verb, inst.Name, "somebody has started its domain; stop that first")
	}
	return nil
}
