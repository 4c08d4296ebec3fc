// SPDX-License-Identifier: Apache-2.0

package shelf

import (
	"context"
	"errors"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// ShelveInput is the input of a shelve.
type ShelveInput struct {
	subject.Subject
	subject.Stopping
	// Keep leaves the domain on its host.
	Keep bool `json:"keep,omitempty"`
	// Was is true if the instance is already on the shelf, and only its domain must be removed.
	Was bool `json:"was,omitempty"`
}

// CheckShelve refuses a shelve that would stop half-way, and an instance that could not come back.
func (e *Env) CheckShelve(ctx context.Context, in *ShelveInput, inst api.Instance) error {
	const verb = "shelve"
	switch {
	case inst.Locked: // first, as in CheckPower
		return subject.Locked(verb, inst)
	case inst.State == api.InstanceShelvedOffloaded, inst.State == api.InstanceShelved && in.Keep:
		return subject.Forbidden(verb, inst.Name, "it is %s already", inst.State)
	case (inst.State == api.InstanceShelved) != in.Was:
		return api.Errorf(api.CodeConflict, "cannot shelve instance %s: it is %s by now; look, and ask again", inst.Name, inst.State)
	}
	dom, err := e.subject.Domain(ctx, inst.ID)
	if err != nil {
		return err
	}
	if err := mayLeave(dom, inst.Name, in.Force); err != nil {
		return err
	}
	if err := e.notMoving(ctx, inst); err != nil {
		return err
	}
	if err := e.recorded(ctx, inst.ID); err != nil {
		return subject.RefusedFor(verb, inst.Name, err)
	}
	atts, err := e.registry.Attachments(ctx, "", inst.ID)
	if err != nil {
		return request.Registry(err)
	}
	if err := mayTake(dom, atts, in.Keep); err != nil {
		return err
	}
	_, err = e.definitions.DomainDefinition(ctx, inst.ID)
	if errors.Is(err, hv.ErrUnsupported) {
		return in.Refusal(verb, err)
	}
	return request.HV(err)
}

// StepAdmitShelve repeats the checks while no other op works on the instance.
func (e *Env) StepAdmitShelve() op.Step {
	return subject.Step(subject.StepNameAdmit, func(ctx context.Context, _ *op.Run, in *ShelveInput) error {
		inst, err := e.registry.Instance(ctx, in.InstanceID)
		if err != nil {
			return request.Registry(err)
		}
		return e.CheckShelve(ctx, in, inst)
	}, nil, nil)
}

// mayLeave refuses a domain that has state on this host besides its definition and disks, or that
// cannot be shut down now.
func mayLeave(dom *hv.Domain, name string, force bool) error {
	const verb = "shelve"
	left := func(what, how string) error {
		return subject.Forbidden(verb, name, "it has %s; %s", what, how)
	}
	switch {
	case dom == nil:
		return api.Errorf(api.CodeNotFound, "cannot shelve instance %s: it is not defined on this host; `%s` says what is known", name, shell.Line("volferryctl", "instance", "show", name))
	case !dom.Persistent:
		return subject.Forbidden(verb, name, "it is transient; define it first (virsh dumpxml, virsh define)")
	case dom.State == hv.StateOther:
		return api.Errorf(api.CodeInstanceBusy, "cannot shelve instance %s: %s", name, request.Unsettled(dom))
	case dom.State == hv.StatePaused && !force:
		return subject.Forbidden(verb, name, "it is paused and cannot shut down; unpause it first, or use --force")
	case dom.ManagedSave:
		return left("a managed save image", "start it, or remove the image ("+shell.Line("virsh", "managedsave-remove", "--", name)+")")
	case dom.Snapshots > 0:
		return left("snapshots", "delete them first ("+shell.Line("virsh", "snapshot-list", "--", name)+")")
	case dom.Checkpoints > 0:
		return left("checkpoints", "delete them first ("+shell.Line("virsh", "checkpoint-list", "--", name)+")")
	}
	return request.AtHome("cannot shelve instance "+name, dom)
}

func (e *Env) notMoving(ctx context.Context, inst api.Instance) error {
	open, err := e.migrations.List(ctx, false)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(open, func(mig api.Migration) bool { return mig.InstanceID == inst.ID })
	if i < 0 {
		return nil
	}
	return api.Errorf(api.CodeMigrationActive, "cannot shelve instance %s: migration %s is moving one of its volumes; complete or cancel that first", inst.Name, open[i].ID).
		With("migration_id", open[i].ID)
}

// mayTake refuses disks that differ from the registry's record. Without keep the domain leaves
// this host, and mayTake also refuses disks that only this host has.
func mayTake(dom *hv.Domain, atts []api.Attachment, keep bool) error {
	for _, a := range atts {
		if a.State != api.AttachmentAttached {
			return api.Errorf(api.CodeConflict, "cannot shelve instance %s: its disk %s is only %s; wait, or `%s`", dom.Name, a.Device, a.State, shell.Line("volferryctl", "attachment", "delete", a.ID, "--force"))
		}
	}
	if what := subject.Differs(dom, atts); what != "" {
		return api.Errorf(api.CodeChainChanged, "cannot shelve instance %s: %s", dom.Name, what)
	}
	for i := range dom.Config {
		d := &dom.Config[i]
		volume := slices.ContainsFunc(atts, func(a api.Attachment) bool { return a.Device == d.Target })
		if !keep && !volume && !isDrive(d) {
			return api.Errorf(api.CodeUnsupportedDisk, "cannot shelve instance %s: its disk %s is no volume and would stay behind; adopt it, or keep the instance on its host (without --offload)", dom.Name, d.Target)
		}
		if !keep && d.IsLUKS() {
			return api.Errorf(api.CodeUnsupportedDisk, "cannot shelve instance %s: its disk %s is encrypted by QEMU (LUKS), and the secret of it is on this host alone; keep the instance on its host (without --offload)", dom.Name, d.Target)
		}
		if !keep && d.Uncarried != "" {
			return wouldLose(dom.Name, d)
		}
	}
	return nil
}

func wouldLose(instance string, d *hv.Disk) error {
	return api.Errorf(api.CodeUnsupportedDisk, "cannot shelve instance %s: its disk %s has %s, which it would come back without; keep the instance on its host (without --offload)",
		instance, d.Target, d.Uncarried)
}

func isDrive(d *hv.Disk) bool { return d.Device == "cdrom" || d.Device == "floppy" }
