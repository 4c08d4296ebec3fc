// SPDX-License-Identifier: Apache-2.0

package shelf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/diskspec"
	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

// The names of steps that other packages use.
const (
	StepNameClaim    = "claim"
	stepNameConnect  = "connect"
	stepNameDefine   = "define"
	StepNameComplete = "complete"
)

type claimed struct {
	api.ShelvedInstance
	// Kept is true if the domain never left this host.
	Kept bool `json:"kept,omitempty"`
}

// StepClaim takes the instance from the shelf, for one host only. Its output is the shelf's
// content.
func (e *Env) StepClaim() op.Step {
	do := func(ctx context.Context, r *op.Run, in *UnshelveInput) error {
		inst, found, err := e.subject.Row(ctx, &in.Subject)
		if err != nil {
			return err
		}
		if found && inst.State == api.InstanceShelved {
			kept, err := e.keptOnHost(ctx, r, in, inst)
			if err != nil || kept {
				return err
			}
		}
		if err := r.Note(ctx, claimNote{Claiming: true}); err != nil {
			return err
		}
		got, err := e.registry.TransitionInstance(ctx, r.OpID()+".claim", in.InstanceID, api.InstanceTransition{
			From: api.InstanceShelvedOffloaded, To: api.InstanceShelved, Host: in.Host, Epoch: in.Epoch, OpID: r.OpID(),
		})
		if err != nil {
			return request.Registry(err)
		}
		if got.Definition == nil {
			return api.Errorf(api.CodeInternal, "the registry has instance %s without its definition", in.InstanceName)
		}
		return r.SetOutput(claimed{ShelvedInstance: got})
	}
	undo := func(ctx context.Context, r *op.Run, in *UnshelveInput) error {
		var note claimNote
		if _, err := r.Noted(StepNameClaim, &note); err != nil || !note.Claiming {
			return err
		}
		inst, found, err := e.subject.Row(ctx, &in.Subject)
		if err != nil || !found || inst.State != api.InstanceShelved {
			return err
		}
		err = e.leaveShelf(ctx, r, &in.Subject, "unclaim", api.InstanceShelvedOffloaded)
		if request.Lost(err) {
			return nil
		}
		return request.Registry(err)
	}
	return subject.Step(StepNameClaim, do, undo, nil)
}

type claimNote struct {
	Claiming bool `json:"claiming"`
}

// keptOnHost reports whether the domain of an instance shelved here still exists. If the domain is
// gone, an offload was interrupted, and keptOnHost completes it.
func (e *Env) keptOnHost(ctx context.Context, r *op.Run, in *UnshelveInput, inst api.Instance) (bool, error) {
	var note claimNote
	if _, err := r.Noted(StepNameClaim, &note); err != nil || note.Claiming {
		return false, err // this op has claimed it
	}
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	if err != nil {
		return false, err
	}
	if dom == nil {
		return false, request.Registry(e.leaveShelf(ctx, r, &in.Subject, "offload", api.InstanceShelvedOffloaded))
	}
	atts, err := e.registry.Attachments(ctx, "", in.InstanceID)
	if err != nil {
		return false, request.Registry(err)
	}
	return true, r.SetOutput(claimed{ShelvedInstance: api.ShelvedInstance{Instance: inst, Attachments: atts}, Kept: true})
}

// StepGuardUnshelved guards the domain before it is defined. The guard stays after an undo,
// because this host then does not have the instance.
func (e *Env) StepGuardUnshelved() op.Step {
	do := func(_ context.Context, _ *op.Run, in *UnshelveInput) error { return e.guardShelf(&in.Subject) }
	observe := func(_ context.Context, _ *op.Run, in *UnshelveInput) (op.Observation, error) {
		has, err := e.guards.Has(in.InstanceID, guard.OwnerShelf)
		return op.DoneIf(has), err
	}
	return subject.Step("guard", do, nil, observe)
}

// StepConnectVolumes prepares the image of every attached volume on this host. Its output has the
// disks to define, the root disk first, to keep its address.
func (e *Env) StepConnectVolumes() op.Step {
	do := func(ctx context.Context, r *op.Run, in *UnshelveInput) error {
		got, err := e.claimedBy(r)
		if err != nil || got.Kept {
			return err
		}
		disks := make([]hv.DiskSpec, 0, len(got.Attachments))
		for _, a := range got.Attachments {
			vol, err := e.registry.Volume(ctx, a.VolumeID)
			if err != nil {
				return request.Registry(err)
			}
			chain, err := e.locations.Connect(ctx, vol, a)
			if err != nil {
				return err
			}
			at := len(disks)
			if api.IsRoot(a.BootIndex) {
				at = 0
			}
			disks = slices.Insert(disks, at, diskFor(got, a, vol, chain))
		}
		return r.SetOutput(disks)
	}
	undo := func(ctx context.Context, r *op.Run, in *UnshelveInput) error {
		got, err := e.claimedBy(r)
		if err != nil || got.Kept {
			return err
		}
		for _, a := range got.Attachments {
			err := e.locations.Disconnect(ctx, api.Volume{ID: a.VolumeID}, a)
			if err != nil && api.CodeOf(err) != api.CodePermissionDenied { // a permission error means a link, which was never connected
				return err
			}
		}
		return nil
	}
	return subject.Step(stepNameConnect, do, undo, nil)
}

func (e *Env) claimedBy(r *op.Run) (claimed, error) {
	var got claimed
	ok, err := r.Output(StepNameClaim, &got)
	if err == nil && !ok {
		err = errors.New("nothing was claimed")
	}
	return got, err
}

func diskFor(got claimed, a api.Attachment, vol api.Volume, chain []hv.Image) hv.DiskSpec {
	slot, wasRoot := slotOf(got, a)
	spec := diskspec.New(vol.ID, a.DiskAttachment, vol.Multiattach, chain, slot)
	spec.NoBootOrder, spec.NewAddress = wasRoot, wasRoot
	return spec
}

// slotOf returns the recorded definition of the disk at an attachment's device, or nil. The
// shelved definition or an emptied slot has it, perhaps at the volume's earlier device. wasRoot is
// true if that was the root disk; its addresses now belong to the present root.
func slotOf(got claimed, a api.Attachment) (slot *api.SlotDefinition, wasRoot bool) {
	device := a.Device
	if got.Definition != nil {
		if slot, ok := got.Definition.Disks[device]; ok {
			return &slot, false
		}
	}
	for _, s := range got.Instance.BlockDeviceMappings {
		if s.Device == device && s.Slot != nil {
			return s.Slot, false
		}
	}
	if was := got.Instance.Detached(a.VolumeID); was != nil && diskspec.BusOf(was.Device) == diskspec.BusOf(device) {
		return &was.Slot, got.Instance.WasRoot(was)
	}
	return nil, false
}

type defineNote struct {
	Defining bool `json:"defining"`
}

// StepDefine defines the domain.
func (e *Env) StepDefine() op.Step {
	do := func(ctx context.Context, r *op.Run, in *UnshelveInput) error {
		got, err := e.claimedBy(r)
		if err != nil || got.Kept {
			return err
		}
		var disks []hv.DiskSpec
		if _, err := r.Output(stepNameConnect, &disks); err != nil {
			return err
		}
		def := hv.DomainDefinition{Domain: got.Definition.Domain, Autostart: got.Definition.Autostart}
		if def.NVRAM, err = UnpackNVRAM(got.Definition.NVRAM); err != nil {
			return err
		}
		if there, err := e.alreadyDefined(ctx, r, in); err != nil || there {
			return err
		}
		if err := r.Note(ctx, defineNote{true}); err != nil {
			return err
		}
		err = e.definitions.DefineDomain(ctx, in.InstanceID, def, disks)
		if errors.Is(err, hv.ErrExists) {
			return e.nameTaken(ctx, r, in, err)
		}
		return in.Refusal("unshelve", err)
	}
	undo := func(ctx context.Context, r *op.Run, in *UnshelveInput) error {
		var note defineNote
		if _, err := r.Noted(stepNameDefine, &note); err != nil || !note.Defining {
			return err
		}
		err := e.definitions.UndefineDomain(ctx, in.InstanceID)
		if errors.Is(err, hv.ErrActive) {
			return op.UnknownOutcome(api.Errorf(api.CodeStateForbidden, "instance %s runs, though it is guarded and not this host's; stop it (`%s`), and ask again, which goes on with it (`%s`)",
				in.InstanceName, shell.Line("virsh", "destroy", "--", in.InstanceName), shell.Line("volferryctl", "instance", "unshelve", in.InstanceName)))
		}
		return request.HV(err)
	}
	observe := func(ctx context.Context, r *op.Run, in *UnshelveInput) (op.Observation, error) {
		var note defineNote
		got, err := e.claimedBy(r)
		if err != nil || got.Kept {
			return op.Done, err
		}
		if _, err := r.Noted(stepNameDefine, &note); err != nil || !note.Defining {
			return op.NotDone, err
		}
		dom, err := e.subject.Domain(ctx, in.InstanceID)
		return op.DoneIf(dom != nil), err
	}
	return subject.Step(stepNameDefine, do, undo, observe)
}

// alreadyDefined reports whether this op has defined the domain. It refuses a domain that this op
// has not defined.
func (e *Env) alreadyDefined(ctx context.Context, r *op.Run, in *UnshelveInput) (bool, error) {
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	if err != nil || dom == nil {
		return false, err
	}
	var note defineNote
	if _, err := r.Noted(stepNameDefine, &note); err != nil || note.Defining {
		return true, err
	}
	return false, e.nameTaken(ctx, r, in, hv.ErrExists)
}

// nameTaken returns the refusal if another domain has the id or name. It records in the journal
// that this op must not undefine the existing domain.
func (e *Env) nameTaken(ctx context.Context, r *op.Run, in *UnshelveInput, err error) error {
	if noteErr := r.Note(ctx, defineNote{false}); noteErr != nil {
		return noteErr
	}
	return api.Errorf(api.CodeConflict, "cannot unshelve instance %s: this host has a domain with its name or id (%v); undefine or rename that first", in.InstanceName, err)
}

// StepVerify checks that the domain is off, with exactly the disks of its attachments.
func (e *Env) StepVerify() op.Step {
	return subject.Step("verify", func(ctx context.Context, r *op.Run, in *UnshelveInput) error {
		got, err := e.claimedBy(r)
		if err != nil {
			return err
		}
		dom, err := e.subject.Domain(ctx, in.InstanceID)
		if err != nil {
			return err
		}
		if what := differsFromShelf(dom, got); what != "" {
			return api.Errorf(api.CodeChainChanged, "cannot unshelve instance %s: %s", in.InstanceName, what)
		}
		if got.Kept {
			return nil
		}
		// Another host wrote the definition. libvirt must confirm that the definition needs no
		// file of this host, also if StepDefine was interrupted.
		_, err = e.definitions.DomainDefinition(ctx, in.InstanceID)
		return in.Refusal("unshelve", err)
	}, nil, nil)
}

func differsFromShelf(dom *hv.Domain, got claimed) string {
	switch {
	case dom == nil:
		return "its domain is gone"
	case dom.State.Active():
		return "somebody has started its domain"
	}
	if what := subject.Differs(dom, got.Attachments); what != "" || got.Kept {
		return what
	}
	volumes := 0
	for i := range dom.Config {
		if !isDrive(&dom.Config[i]) {
			volumes++
		}
	}
	if volumes != len(got.Attachments) {
		return fmt.Sprintf("its domain has %s, and the registry has %s attached to it", humanize.Count(volumes, "disk"), humanize.Count(len(got.Attachments), "volume"))
	}
	for _, a := range got.Attachments {
		d := dom.ConfigDisk(a.Device)
		switch {
		case d == nil || len(d.Chain) != 1+len(a.Location.Backing.Images()) || !d.Terminated:
			return fmt.Sprintf("its disk %s is not the volume alone", a.Device)
		case !diskspec.InMode(d, a.DiskAttachment):
			return fmt.Sprintf("its disk %s is read-only: %t", a.Device, d.ReadOnly)
		}
	}
	return ""
}

// StepComplete reports to the registry that this host has the instance again.
func (e *Env) StepComplete() op.Step {
	do := func(ctx context.Context, r *op.Run, in *UnshelveInput) error {
		_, err := e.registry.TransitionInstance(ctx, r.OpID()+".complete", in.InstanceID, api.InstanceTransition{
			From: api.InstanceShelved, To: api.InstanceStopped, Host: in.Host, Epoch: in.Epoch, OpID: r.OpID(),
		})
		return request.Registry(err)
	}
	observe := func(ctx context.Context, _ *op.Run, in *UnshelveInput) (op.Observation, error) {
		mine, err := e.subject.IsOurs(ctx, &in.Subject)
		return op.DoneIf(mine), err
	}
	return subject.Step(StepNameComplete, do, nil, observe)
}

// StepClear permits starts of the instance.
func (e *Env) StepClear() op.Step {
	do := func(_ context.Context, _ *op.Run, in *UnshelveInput) error {
		return errors.Join(e.guards.Clear(in.InstanceID, guard.OwnerRoot), e.guards.Clear(in.InstanceID, guard.OwnerShelf))
	}
	return subject.Step("clear", do, nil, nil)
}

// StepThenStart submits another op that starts the instance: a failed start does not fail this op.
func (e *Env) StepThenStart() op.Step {
	return subject.Step("then_start", func(ctx context.Context, r *op.Run, in *UnshelveInput) error {
		next := subject.PowerInput{Subject: in.Subject}
		next.Body, next.Whole = request.Body{}, false
		data, err := json.Marshal(next)
		if err != nil {
			return fmt.Errorf("encode the start of instance %s: %w", in.InstanceName, err)
		}
		return e.runner.Submit(ctx, op.Op{
			ID: api.StartOp(r.OpID()), Kind: subject.KindStart, Group: next.Group(), Keys: next.Keys(), Input: data, CreatedAt: time.Now().UTC(),
		})
	}, nil, nil)
}

// UnshelveInput is the input of an unshelve.
type UnshelveInput struct{ subject.Subject }
