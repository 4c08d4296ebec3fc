// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

func (e *Env) stepAdmitUnshelve() op.Step {
	return step(StepNameAdmit, func(ctx context.Context, _ *op.Run, in *UnshelveInput) error {
		inst, err := e.Registry.Instance(ctx, in.InstanceID)
		if err != nil {
			return request.Registry(err)
		}
		return e.CheckUnshelve(ctx, inst)
	}, nil, nil)
}

// CheckUnshelve refuses an instance that cannot come back now, or is not on the shelf.
func (e *Env) CheckUnshelve(ctx context.Context, inst api.Instance) error {
	const verb = "unshelve"
	switch {
	case !inst.State.OnShelf():
		return forbidden(verb, inst.Name, "it is %s", inst.State)
	case inst.Locked:
		return locked(verb, inst)
	case inst.LacksRoot():
		return NoRoot(verb, inst.Name)
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
