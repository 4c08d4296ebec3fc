// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"context"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Input is the input of a repair. If Whole is false, an op of a migration waits for the operator,
// and the repair corrects only that migration's disk.
type Input struct {
	subject.Subject
	// SourceUnwritten is the field of api.InstanceRepair.
	SourceUnwritten bool `json:"source_unwritten,omitempty"`
}

// CheckRepair refuses the repair of a running instance, and a repair if the right images are
// unknown. It changes nothing. Its errors are typed for the runner.
func (e *Env) CheckRepair(ctx context.Context, in *Input) error {
	if !in.Whole {
		_, err := e.mayRepair(ctx, in)
		return err
	}
	_, err := e.toRepair(ctx, in)
	return err
}

// StepAdmitRepair repeats the checks of a repair.
func (e *Env) StepAdmitRepair() op.Step {
	return subject.Step(subject.StepNameAdmit, func(ctx context.Context, _ *op.Run, in *Input) error { return e.CheckRepair(ctx, in) }, nil, nil)
}

// StepNameVolumes corrects the images of wrong disks in the definition. It finds these disks at
// each attempt. It has no undo, because the new names are right in any case.
func (e *Env) StepNameVolumes() op.Step {
	do := func(ctx context.Context, r *op.Run, in *Input) error {
		if !in.Whole {
			if err := e.movingGuests.NameStanding(ctx, in.InstanceID); err != nil {
				return err
			}
			return r.Note(ctx, namedNote{Named: true})
		}
		wrong, err := e.toRepair(ctx, in)
		if err != nil {
			return err
		}
		for _, d := range wrong {
			if err := e.definitions.SetConfigChain(ctx, in.InstanceID, d.Target, d.Chain); err != nil {
				return in.Refusal("repair", err)
			}
			e.log.Info("a definition names its volume again", "instance", in.InstanceName, "disk", d.Target, "path", d.Chain[0].Path)
		}
		return nil
	}
	observe := func(ctx context.Context, r *op.Run, in *Input) (op.Observation, error) {
		if !in.Whole {
			var note namedNote
			_, err := r.Noted(stepNameVolumes, &note)
			return op.DoneIf(note.Named), err
		}
		dom, err := e.subject.Domain(ctx, in.InstanceID) // it may have been started
		if err != nil || dom == nil {
			return op.NotDone, err
		}
		wrong, err := e.misnamed(ctx, in, dom)
		return op.DoneIf(len(wrong) == 0), err
	}
	return subject.Step(stepNameVolumes, do, nil, observe)
}

const stepNameVolumes = "name_volumes"

type namedNote struct {
	Named bool `json:"named"`
}

func (e *Env) toRepair(ctx context.Context, in *Input) ([]hv.NamedChain, error) {
	dom, err := e.mayRepair(ctx, in)
	if err != nil {
		return nil, err
	}
	if dom.State.Active() {
		return nil, subject.Forbidden("repair", dom.Name, "it is %s; shut it down first: the disks of a running guest are not changed", dom.State)
	}
	if err := request.AtHome("cannot repair instance "+dom.Name, dom); err != nil {
		return nil, err
	}
	if err := e.recorded(ctx, in.InstanceID); err != nil {
		return nil, subject.RefusedFor("repair", dom.Name, err)
	}
	return e.misnamed(ctx, in, dom)
}

func (e *Env) mayRepair(ctx context.Context, in *Input) (*hv.Domain, error) {
	inst, err := e.registry.Instance(ctx, in.InstanceID)
	if err != nil {
		return nil, request.Registry(err)
	}
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	if err != nil {
		return nil, err
	}
	switch {
	case inst.Locked:
		return nil, subject.Locked("repair", inst)
	case inst.State.OnShelf():
		return nil, subject.Forbidden("repair", inst.Name, "it is %s, and its definition is at the registry", inst.State)
	case dom == nil:
		return nil, api.Errorf(api.CodeNotFound, "cannot repair instance %s: it is not defined on this host; define it again first (virsh define), then its disks can be put right", inst.Name)
	}
	return dom, nil
}

// misnamed returns the disks with a wrong image in the definition, each with its right chain. For
// a moving volume the migration has the right chain.
func (e *Env) misnamed(ctx context.Context, s *Input, dom *hv.Domain) ([]hv.NamedChain, error) {
	out, err := e.movingGuests.Misnamed(ctx, s.InstanceID, s.SourceUnwritten)
	if err != nil {
		return nil, err
	}
	atts, err := e.subject.AtRest(ctx, s.InstanceID)
	if err != nil {
		return nil, request.Registry(err)
	}
	for _, a := range atts {
		what := subject.Differs(dom, []api.Attachment{a})
		if what == "" {
			continue
		}
		if dom.ConfigDisk(a.Device) == nil {
			return nil, api.Errorf(api.CodeChainChanged, "cannot repair instance %s: %s. %s", s.InstanceName, what, plugAgain(dom, &a))
		}
		vol, err := e.registry.Volume(ctx, a.VolumeID)
		if err != nil {
			return nil, request.Registry(err)
		}
		chain, err := e.locations.Chain(ctx, vol, a)
		if err != nil {
			return nil, err
		}
		out = append(out, hv.NamedChain{Target: a.Device, Chain: chain})
	}
	return out, nil
}

func plugAgain(dom *hv.Domain, a *api.Attachment) string {
	if a.Location.IsLUKS() {
		return "Such a disk cannot be attached anew: define the instance by a copy of its definition that has the disk (`virsh define FILE`), and repair it then"
	}
	commands := []string{}
	if _, elsewhere, _ := location.DiskOf([]hv.Domain{*dom}, a.Location.Path); elsewhere != "" {
		commands = append(commands, shell.Line("virsh", "detach-disk", "--config", "--", dom.Name, elsewhere))
	}
	commands = append(commands,
		shell.Line("volferryctl", "volume", "detach", subject.VolumeOf(a), dom.Name),
		shell.AttachVolume(subject.VolumeOf(a), dom.Name, a.Device, api.IsRoot(a.BootIndex), a.Mode == api.ModeRO))
	return "Attach it anew, as a new disk is attached: `" + strings.Join(commands, "`, then `") + "`"
}
