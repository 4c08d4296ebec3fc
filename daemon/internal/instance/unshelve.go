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
func (g *Manager) BeginUnshelve(ctx context.Context, opID, instanceRef string) (api.Instance, error) {
	return g.take(ctx, request.Request{
		OpID: opID, Kind: kindUnshelve, Asked: asked{Instance: instanceRef},
		Decide: func(ctx context.Context) (request.Input, error) {
			inst, err := g.machine.Registry.Instance(ctx, instanceRef)
			if err != nil {
				return nil, err
			}
			in := &unshelveInput{}
			if in.subject, err = g.machine.subjectOf(ctx, inst); err != nil {
				return nil, err
			}
			in.Whole = true
			return in, g.machine.mayUnshelve(ctx, inst)
		},
	}, stepNameClaim)
}

// StartOf is the id of the op that starts what an unshelve brought back.
func StartOf(unshelveOpID string) string { return api.StartOp(unshelveOpID) }

// unshelveInput is the input of an unshelve.
type unshelveInput struct{ subject }

func (m *machine) unshelvePlan() op.Plan {
	return op.Plan{Kind: kindUnshelve, Commit: stepNameComplete, Steps: []op.Step{
		m.stepMayUnshelve(),
		m.stepClaim(),
		m.stepGuardUnshelved(),
		m.stepConnectVolumes(),
		m.stepDefine(),
		m.stepVerify(),
		m.stepComplete(),
		m.stepClear(),
		m.stepReport(),
		m.stepThenStart(),
	}}
}

func (m *machine) stepMayUnshelve() op.Step {
	return step(stepNameAdmit, func(ctx context.Context, _ *op.Run, in *unshelveInput) error {
		inst, err := m.Registry.Instance(ctx, in.InstanceID)
		if err != nil {
			return request.Registry(err)
		}
		return m.mayUnshelve(ctx, inst)
	}, nil, nil)
}

func (m *machine) mayUnshelve(ctx context.Context, inst api.Instance) error {
	const verb = "unshelve"
	switch {
	case !shelved(inst.State):
		return forbidden(verb, inst.Name, "it is %s", inst.State)
	case inst.Locked:
		return locked(verb, inst)
	case inst.LacksRoot():
		return noRoot(verb, inst.Name)
	}
	dom, err := m.domain(ctx, inst.ID)
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
