// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

const stepNameSave = "save"

// waitSave is what an op waits for that finds a domain which libvirt is saving.
const waitSave = "save"

// BeginSave puts an instance to rest for a migration that has locked it: its RAM goes
// to a file, so that no process has the volume open, and it is guarded until it is
// woken (BeginRestore). One that is off is guarded only.
func (g *Manager) BeginSave(ctx context.Context, opID, instanceRef string, in api.InstanceSave) (api.Instance, error) {
	return g.take(ctx, request.Request{
		OpID: opID, Kind: kindSave, Asked: asked{instanceRef, in},
		Decide: func(ctx context.Context) (request.Input, error) {
			input, err := g.machine.pauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
			if err != nil {
				return nil, err
			}
			_, err = g.maySave(ctx, input)
			return input, err
		},
	})
}

// pauseInput is the input of an op of a migration that has locked the instance.
func (m *machine) pauseInput(ctx context.Context, instanceRef, migrationID, volumeID string) (*pauseInput, error) {
	if _, err := uuid.Parse(migrationID); err != nil { // it is part of a file's name
		return nil, api.Errorf(api.CodeInvalidArgument, "migration_id is %.60q, which is no id", migrationID)
	}
	inst, err := m.Registry.Instance(ctx, instanceRef)
	if err != nil {
		return nil, err
	}
	if err := lockedFor(inst, migrationID); err != nil {
		return nil, err
	}
	in := &pauseInput{MigrationID: migrationID, Memory: m.memoryPath(inst.ID, migrationID)}
	if in.subject, err = m.subjectOf(ctx, inst); err != nil {
		return nil, err
	}
	in.Whole = true
	vol, err := m.Registry.Volume(ctx, volumeID)
	if err != nil {
		return nil, err
	}
	in.VolumeID, in.VolumeName = vol.ID, vol.Name
	atts, err := m.Registry.Attachments(ctx, vol.ID, inst.ID)
	if err != nil {
		return nil, err
	}
	if len(atts) == 0 {
		return nil, api.Errorf(api.CodeNotFound, "volume %s is not attached to instance %s", vol.Name, inst.Name)
	}
	in.Device, in.Location = atts[0].Device, atts[0].Location
	return in, nil
}

// lockedFor refuses what does not come from the migration that has locked the
// instance: everybody else would meet its guests in the middle of a move.
func lockedFor(inst api.Instance, migrationID string) error {
	switch {
	case inst.Locked && inst.LockedBy == migrationID:
		return nil
	case inst.Locked:
		return locked("save or restore", inst)
	}
	return forbidden("save or restore", inst.Name, "no migration has locked it; `volferryctl volume migrate VOLUME --pause-all` does this by itself")
}

// maySave makes every check that can be made before anything is touched. An instance
// that another op has put to rest for the migration, because its answer did not get
// to the registry, is what that op found it to be: before. Its errors are typed for
// the runner.
func (g *Manager) maySave(ctx context.Context, in *pauseInput) (before rest, err error) {
	if yes, err := g.awoken(ctx, in); err != nil || yes {
		return before, errors.Join(err, lateSave(in, yes))
	}
	before, err = g.rested(ctx, in)
	if err != nil || before.State != "" {
		return before, err
	}
	return before, g.machine.maySaveNow(ctx, in)
}

func (m *machine) maySaveNow(ctx context.Context, in *pauseInput) error {
	dom, err := m.pausedDomain(ctx, in)
	if err != nil {
		return err
	}
	if err := savable(dom, in); err != nil {
		return err
	}
	if err := m.Guards.Enforced(); err != nil {
		return forbidden("save", in.InstanceName, "it would have to be kept off, and %v; `volferryctl doctor` says what to do", err)
	}
	if err := m.Guards.HookKnowsPasses(); err != nil {
		return forbidden("save", in.InstanceName, "it could not be woken: %v", err)
	}
	free, err := m.Images.FreeBytes(m.saveDir)
	if err != nil {
		return err
	}
	if need := memoryBytes(dom); free < need {
		return api.Errorf(api.CodeNoSpace, "cannot save instance %s: its memory may take %d bytes and %s has %d free; make room or set save_dir",
			in.InstanceName, need, m.saveDir, free).With("free_bytes", free).With("needed_bytes", need)
	}
	return nil
}

func lateSave(in *pauseInput, yes bool) error {
	if !yes {
		return nil
	}
	return forbidden("save", in.InstanceName, "migration %s has asked for it to be restored already", in.MigrationID)
}

// pausedDomain reads the domain of an instance, which has to be there.
func (m *machine) pausedDomain(ctx context.Context, in *pauseInput) (*hv.Domain, error) {
	dom, err := m.domain(ctx, in.InstanceID)
	if err == nil && dom == nil {
		err = api.Errorf(api.CodeNotFound, "instance %s is not defined on this host; `volferryctl instance show %s` says what is known", in.InstanceName, in.InstanceName)
	}
	return dom, err
}

// savable refuses a domain whose RAM or whose disk could not be put back.
func savable(dom *hv.Domain, in *pauseInput) error {
	cannot := func(why string, args ...any) error { return forbidden("save", in.InstanceName, why, args...) }
	if err := request.AtHome("cannot save instance "+in.InstanceName, dom); err != nil {
		return err
	}
	switch {
	case !dom.Persistent:
		return cannot("its domain is transient")
	case dom.ManagedSave:
		return cannot("it was saved by libvirt, with its disks as they were then; start it, or drop that: virsh managedsave-remove %s", dom.Name)
	case dom.State == hv.StateOther:
		return api.Errorf(api.CodeInstanceBusy, "cannot save instance %s: it is neither running, paused nor stopped; try again when it is", in.InstanceName)
	case !uses(dom.ConfigDisk(in.Device), in.Location.Path):
		return in.chainChanged("persistent definition")
	case dom.State.Active() && !uses(dom.LiveDisk(in.Device), in.Location.Path):
		return in.chainChanged("running domain")
	case dom.State.Active() && dom.LiveDisk(in.Device).Mirror != nil:
		return api.Errorf(api.CodeInstanceBusy, "cannot save instance %s: a block job runs on its disk %s", in.InstanceName, in.Device)
	case dom.State.Active():
		if what := otherDisks(dom.Live, dom.Config, in.Device); what != "" {
			return cannot("its disk %s in its definition, and it would come back as it runs now; make the two the same", what)
		}
	}
	return nil
}

// otherDisks says which disk besides one is not the same image in a process, or in the
// RAM of one, as in the persistent definition; "" if none. Drives whose medium may be
// changed at any time are left out.
func otherDisks(process, config []hv.Disk, except string) string {
	defined := make(map[string]*hv.Disk)
	for i := range config {
		if d := &config[i]; d.Device == "disk" && d.Target != except {
			defined[d.Target] = d
		}
	}
	for i := range process {
		d := &process[i]
		if d.Device != "disk" || d.Target == except {
			continue
		}
		other := defined[d.Target]
		if other == nil {
			return fmt.Sprintf("%s is %s, and none", d.Target, d.Top().Path)
		}
		// Below the top one of the two may say less.
		for n := range min(len(d.Chain), len(other.Chain)) {
			if d.Chain[n] != other.Chain[n] {
				return fmt.Sprintf("%s is %s (%s), and %s (%s)", d.Target, d.Chain[n].Path, d.Chain[n].Format, other.Chain[n].Path, other.Chain[n].Format)
			}
		}
		delete(defined, d.Target)
	}
	for target, d := range defined {
		return fmt.Sprintf("%s is none, and %s", target, d.Top().Path)
	}
	return ""
}

// uses says whether a disk is the image at path, and nothing else.
func uses(d *hv.Disk, path string) bool {
	return d != nil && len(d.Chain) == 1 && d.Chain[0].Path == path
}

func (in *pauseInput) chainChanged(where string) error {
	return api.Errorf(api.CodeChainChanged, "disk %s in the %s of instance %s is not volume %s at %s; `volferryctl volume which %s` shows what is known",
		in.Device, where, in.InstanceName, in.VolumeName, in.Location.Path, in.VolumeName)
}

// pausePlans: no process has the volume open between the two. What is done for a
// guest that cannot be saved after all is undone; the first thing that a restore does
// is not, since the location that it is told is right whatever follows.
func (g *Manager) pausePlans() []op.Plan {
	m := g.machine
	return []op.Plan{
		{Kind: kindSave, Steps: []op.Step{
			step(stepNameAdmit, g.admitSave, nil, nil),
			m.stepRestGuard(),
			m.stepSave(),
			m.stepReleased(),
			m.stepReport(),
		}},
		{Kind: kindRestore, Commit: stepNameForgetMemory, Steps: []op.Step{
			g.stepRested(),
			m.stepConnect(),
			m.stepName(),
			m.stepWake(),
			m.stepForgetMemory(),
			m.stepGoOn(),
			m.stepReport(),
		}},
	}
}

// admitSave looks once more, now that no other op is at the instance. Its output is
// what an op before this one found it to be.
func (g *Manager) admitSave(ctx context.Context, r *op.Run, in *pauseInput) error {
	inst, err := g.machine.Registry.Instance(ctx, in.InstanceID)
	if err != nil {
		return request.Registry(err)
	}
	if err := lockedFor(inst, in.MigrationID); err != nil {
		return err
	}
	before, err := g.maySave(ctx, in)
	if err != nil {
		return err
	}
	return r.SetOutput(before)
}

// before is the output of admitSave: what is at rest by another op is not this one's
// to save, nor to bring back.
func before(r *op.Run) (rest, error) {
	var was rest
	_, err := r.Output(stepNameAdmit, &was)
	return was, err
}

// stepRestGuard keeps everybody from starting the instance, from before its process
// ends until it is woken. The guard of one that could not be brought back stays.
func (m *machine) stepRestGuard() op.Step {
	do := func(_ context.Context, _ *op.Run, in *pauseInput) error {
		return m.Guards.Set(in.InstanceID, in.owner(), in.reason())
	}
	undo := func(ctx context.Context, r *op.Run, in *pauseInput) error {
		if was, err := before(r); err != nil || was.State != "" {
			return err
		}
		if asleep, err := m.asleep(ctx, in); err != nil || asleep {
			return err
		}
		return m.Guards.Clear(in.InstanceID, in.owner())
	}
	observe := func(_ context.Context, _ *op.Run, in *pauseInput) (op.Observation, error) {
		has, err := m.Guards.Has(in.InstanceID, in.owner())
		return op.DoneIf(has), err
	}
	return step("guard", do, undo, observe)
}

// stepSave writes the RAM to the file and ends the process. What the instance was is
// noted before. A guest that goes off by itself meanwhile is off, which is all that
// the move needs.
func (m *machine) stepSave() op.Step {
	do := func(ctx context.Context, r *op.Run, in *pauseInput) error {
		dom, err := m.pausedDomain(ctx, in)
		if err != nil {
			return err
		}
		if dom.State == hv.StateOther {
			return op.WaitFor(waitSave, api.Errorf(api.CodeInstanceBusy, "instance %s is being saved already", in.InstanceName))
		}
		was := restOf(dom)
		first, err := before(r)
		if err != nil {
			return err
		}
		if noted, err := r.Noted(stepNameSave, &rest{}); err != nil {
			return err
		} else if !noted {
			if err := r.Note(ctx, cmp.Or(first, was)); err != nil {
				return err
			}
		}
		if first.State != "" {
			return nil
		}
		if !was.hadMemory() {
			return m.settleMemory(ctx, in)
		}
		return m.saveMemory(ctx, in)
	}
	undo := func(ctx context.Context, r *op.Run, in *pauseInput) error {
		var was rest
		if noted, err := r.Noted(stepNameSave, &was); err != nil || !noted || !was.hadMemory() {
			return err
		}
		if first, err := before(r); err != nil || first.State != "" {
			return err
		}
		err := m.unsave(ctx, in, was)
		if api.CodeOf(err) == api.CodeNeedsOperator {
			m.log.Warn("an instance that was saved stays so until its restore is asked for", "instance", in.InstanceName, "err", err)
			return nil
		}
		return err
	}
	observe := func(ctx context.Context, r *op.Run, in *pauseInput) (op.Observation, error) {
		var was rest
		noted, err := r.Noted(stepNameSave, &was)
		if err != nil || !noted {
			return op.NotDone, err
		}
		dom, err := m.pausedDomain(ctx, in)
		if err != nil || dom.State.Active() {
			return op.NotDone, err
		}
		if parts, err := partsOf(in); err != nil || len(parts) > 0 {
			return op.NotDone, err
		}
		return op.Done, r.SetOutput(was)
	}
	return step(stepNameSave, do, undo, observe)
}

// saveMemory writes the RAM file of a guest that has a process.
func (m *machine) saveMemory(ctx context.Context, in *pauseInput) error {
	// It runs, so what is in a file of before is not all of it.
	if err := removeMemory(in); err != nil {
		return err
	}
	err := m.HV.SaveMemory(ctx, in.InstanceID, m.part(in))
	switch {
	case err == nil:
		return m.keepMemory(in)
	case errors.Is(err, hv.ErrNotActive): // it went off
		return m.settleMemory(ctx, in)
	}
	return in.refusal("save", err)
}

// unsave brings a guest back that was saved, or was to be. One that cannot be woken
// (needs_operator) stays as it is: the registry asks for its restore, whatever becomes
// of its save, and that is tried again as often as an operator wants.
func (m *machine) unsave(ctx context.Context, in *pauseInput, was rest) error {
	dom, err := m.domain(ctx, in.InstanceID)
	switch {
	case err != nil:
		return err
	case dom != nil && dom.State == hv.StateOther:
		return op.WaitFor(waitSave, api.Errorf(api.CodeInstanceBusy, "instance %s is being saved", in.InstanceName))
	case dom == nil || !dom.State.Active():
		if err := m.settleMemory(ctx, in); err != nil {
			return err
		}
		if _, err := m.wake(ctx, in, was); err != nil {
			return err
		}
	}
	if err := removeMemory(in); err != nil {
		return err
	}
	return m.goOn(ctx, in, was)
}

// stepReleased makes sure that nobody on this host has the volume open but guests
// that the migration has still to save, and that what this host has in memory of it
// is where others will read it.
func (m *machine) stepReleased() op.Step {
	return step("released", func(ctx context.Context, _ *op.Run, in *pauseInput) error {
		doms, err := m.HV.Domains(ctx)
		if err != nil {
			return request.HV(err)
		}
		atts, err := m.Registry.Attachments(ctx, in.VolumeID, "")
		if err != nil {
			return request.Registry(err)
		}
		for i := range doms {
			if err := m.mayHaveOpen(ctx, in, &doms[i], atts); err != nil {
				return err
			}
		}
		user, err := m.Images.InUse(ctx, in.Location.Path)
		if err != nil {
			return err
		}
		if user != "" {
			return in.stillOpen(user)
		}
		return m.Images.Disconnect(ctx, in.Location.Path)
	}, nil, nil)
}

// mayHaveOpen refuses a domain that has the volume open and is not one that the
// migration saves next.
func (m *machine) mayHaveOpen(ctx context.Context, in *pauseInput, dom *hv.Domain, atts []api.Attachment) error {
	open, err := location.Opens(ctx, m.HV, dom, in.Location.Path)
	if err != nil || !open {
		return request.HV(err)
	}
	saved, err := m.Guards.Has(dom.ID, in.owner())
	if err != nil {
		return err
	}
	for i := range atts {
		if atts[i].InstanceID == dom.ID && !saved {
			return nil
		}
	}
	return in.stillOpen("instance " + dom.Name)
}

func (in *pauseInput) stillOpen(who string) error {
	return api.Errorf(api.CodeVolumeInUse, "cannot move volume %s with all its guests paused: %s is still in use: %s", in.VolumeName, in.Location.Path, who)
}
