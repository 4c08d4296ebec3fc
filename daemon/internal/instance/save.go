// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
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
			input.Suspended = true
			_, err = g.maySave(ctx, input)
			return input, err
		},
	})
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
	was, err := g.suspended(ctx, in)
	if err != nil {
		return before, err
	}
	if err := g.machine.standsStill(ctx, in, was); err != nil {
		return before, err
	}
	return before, g.machine.maySaveNow(ctx, in)
}

// ranOn is the detail of a refusal by which the registry knows that a guest has run on
// beside others that may be saved already.
const ranOn = "ran_on"

// standsStill refuses to save a guest that was not suspended, or runs again: the memory
// of the others would be older than what it writes.
func (m *machine) standsStill(ctx context.Context, in *pauseInput, was rest) error {
	if was.State == "" {
		return forbidden("save", in.InstanceName, "it was not suspended for migration %s; is the registry older than this host's volferryd?", in.MigrationID)
	}
	dom, err := m.pausedDomain(ctx, in)
	if err == nil && dom.State == hv.StateRunning {
		err = forbidden("save", in.InstanceName, "it was suspended for migration %s, and somebody has let it run on", in.MigrationID).With(ranOn, true)
	}
	return err
}

func (m *machine) maySaveNow(ctx context.Context, in *pauseInput) error {
	dom, err := m.pausedDomain(ctx, in)
	if err != nil {
		return err
	}
	if err := savable(dom, in); err != nil {
		return err
	}
	if err := m.mayMove(ctx, in); err != nil {
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

// mayMove makes the checks of a move of the volume without pausing its guests.
func (m *machine) mayMove(ctx context.Context, in *pauseInput) error {
	vol, err := m.Registry.Volume(ctx, in.VolumeID)
	if err != nil {
		return request.Registry(err)
	}
	atts, err := m.Registry.Attachments(ctx, in.VolumeID, "")
	if err != nil {
		return request.Registry(err)
	}
	var own api.Attachment
	ids := make([]string, len(atts))
	for i, a := range atts {
		ids[i] = a.InstanceID
		if a.InstanceID == in.InstanceID {
			own = a
		}
	}
	err = m.Migrations.CheckPaused(ctx, vol, own, ids)
	if api.CodeOf(err) == api.CodeHypervisorUnavailable {
		return op.WaitFor(request.WaitHypervisor, err)
	}
	return err
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
		if was, err := before(r); err != nil || was.State != "" || in.Suspended {
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

// mayHaveOpen refuses a domain that has the volume open and is not one that stands still
// for the migration, which saves it next.
func (m *machine) mayHaveOpen(ctx context.Context, in *pauseInput, dom *hv.Domain, atts []api.Attachment) error {
	open, err := location.Opens(ctx, m.HV, dom, in.Location.Path)
	if err != nil || !open {
		return request.HV(err)
	}
	for i := range atts {
		if atts[i].InstanceID == dom.ID && dom.State == hv.StatePaused {
			return nil
		}
	}
	return in.stillOpen("instance " + dom.Name)
}

func (in *pauseInput) stillOpen(who string) error {
	return api.Errorf(api.CodeVolumeInUse, "cannot move volume %s with all its guests paused: %s is still in use: %s", in.VolumeName, in.Location.Path, who)
}
