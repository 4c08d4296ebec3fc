// SPDX-License-Identifier: Apache-2.0

package shelf

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// StepAdmitUnshelve repeats the checks of an unshelve.
func (e *Env) StepAdmitUnshelve() op.Step {
	return subject.Step(subject.StepNameAdmit, func(ctx context.Context, _ *op.Run, in *UnshelveInput) error {
		inst, err := e.registry.Instance(ctx, in.InstanceID)
		if err != nil {
			return request.Registry(err)
		}
		return e.CheckUnshelve(ctx, inst)
	}, nil, nil)
}

// CheckUnshelve refuses an instance that is not on the shelf, or that cannot come back now.
func (e *Env) CheckUnshelve(ctx context.Context, inst api.Instance) error {
	const verb = "unshelve"
	switch {
	case !inst.State.OnShelf():
		return subject.Forbidden(verb, inst.Name, "it is %s", inst.State)
	case inst.Locked:
		return subject.Locked(verb, inst)
	case inst.LacksRoot():
		return subject.NoRoot(verb, inst.Name)
	}
	if err := e.recorded(ctx, inst.ID); err != nil {
		return subject.RefusedFor(verb, inst.Name, err)
	}
	dom, err := e.subject.Domain(ctx, inst.ID)
	switch {
	case err != nil:
		return err
	case dom != nil && inst.State == api.InstanceShelvedOffloaded:
		return e.notFromShelf(ctx, inst, dom)
	case dom != nil && dom.State.Active():
		return subject.Forbidden(verb, inst.Name, "somebody has started its domain; stop that first")
	}
	return nil
}

// notFromShelf refuses an instance that has a domain here while the registry has it on no host.
// The disks show whether the registry is right: a registry restored from a backup may have an
// instance on the shelf that has come back since.
func (e *Env) notFromShelf(ctx context.Context, inst api.Instance, dom *hv.Domain) error {
	refused := func(format string, args ...any) error {
		return api.Errorf(api.CodeConflict, "cannot unshelve instance %s: this host has a domain %s with its id, which the registry has on no host; "+format, append([]any{inst.Name, dom.Name}, args...)...)
	}
	atts, err := e.registry.Attachments(ctx, "", inst.ID)
	if err != nil {
		return request.Registry(err)
	}
	for i := range atts {
		if what := subject.DefinitionDiffers(dom, &atts[i]); what != "" {
			return refused("%s. If the registry was restored from a backup, the domain may be the newer of the two: do not undefine it; docs/how-to/lose-a-host.md (The registry is lost) says how it is kept", what)
		}
	}
	if dom.State.Active() {
		return refused("its guest runs on the volumes: if the registry was restored from a backup, docs/how-to/lose-a-host.md (The registry is lost) says how it is kept; else shut it down (`%s`), and ask again", shell.Line("virsh", "shutdown", "--", dom.Name))
	}
	undefine := shell.Line("virsh", "undefine", "--keep-nvram", "--", dom.Name)
	return refused("it is off, and its disks are the volumes, which an undefine does not touch: if what is on the shelf is to be the instance, undefine it (`%s`)", undefine)
}
