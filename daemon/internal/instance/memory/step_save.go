// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

// CheckSave makes the checks of a save that change nothing. If an earlier op has saved the
// instance, before is the instance's state before that save. Errors are typed for the runner.
func (e *Env) CheckSave(ctx context.Context, in *PauseInput) (before SavedState, err error) {
	if yes, err := e.wakeRequested(ctx, in); err != nil || yes {
		return before, errors.Join(err, saveTooLate(in, yes))
	}
	before, err = e.SavedState(ctx, in)
	if err != nil || before.State != "" {
		return before, err
	}
	was, err := e.suspendedState(ctx, in)
	if err != nil {
		return before, err
	}
	if err := e.checkSuspended(ctx, in, was); err != nil {
		return before, err
	}
	return before, e.maySaveNow(ctx, in)
}

// ranOnDetail marks a refusal because a guest has run while others may be saved. instanceDetail
// names that guest if it is not the one to save.
const (
	ranOnDetail    = "ran_on"
	instanceDetail = "instance_id"
)

// checkSuspended refuses to save a guest that was not suspended, or that runs again: the saved
// memory of the volume's other guests would be older than this guest's writes.
func (e *Env) checkSuspended(ctx context.Context, in *PauseInput, was SavedState) error {
	if was.State == "" {
		return subject.Forbidden("save", in.InstanceName, "it was not suspended for migration %s", in.MigrationID)
	}
	dom, err := e.pausedDomain(ctx, in)
	if err == nil && dom.State == hv.StateRunning {
		err = subject.Forbidden("save", in.InstanceName, "it was suspended for migration %s, and somebody has let it run on", in.MigrationID).With(ranOnDetail, true)
	}
	return err
}

func (e *Env) maySaveNow(ctx context.Context, in *PauseInput) error {
	dom, err := e.pausedDomain(ctx, in)
	if err != nil {
		return err
	}
	if err := savable(dom, in); err != nil {
		return err
	}
	if err := e.mayMove(ctx, in); err != nil {
		return err
	}
	if err := e.guards.Enforced(); err != nil {
		return subject.Forbidden("save", in.InstanceName, "it would have to be kept off, and %v; `volferryctl doctor` says what to do", err)
	}
	if err := e.guards.HookKnowsStartTokens(); err != nil {
		return subject.Forbidden("save", in.InstanceName, "it could not be woken: %v", err)
	}
	return e.checkRoom(in, Bytes(dom), "its memory")
}

func (e *Env) checkRoom(in *PauseInput, need int64, what string) error {
	free, err := e.subject.FreeBytes()
	if err != nil {
		return err
	}
	if free < need {
		return api.Errorf(api.CodeNoSpace, "cannot save instance %s: %s may take %s and %s has %s free; make room or set save_dir",
			in.InstanceName, what, humanize.ExactBytes(need), e.cfg.SaveDir, humanize.ExactBytes(free)).With("free_bytes", free).With("needed_bytes", need)
	}
	return nil
}

// checkRoomForAll refuses without enough space for the memory of all guests of the volume on this
// host: they are saved together.
func (e *Env) checkRoomForAll(ctx context.Context, in *PauseInput) error {
	atts, err := e.registry.Attachments(ctx, in.VolumeID, "")
	if err != nil {
		return request.Registry(err)
	}
	var need int64
	for _, a := range atts {
		dom, err := e.subject.Domain(ctx, a.InstanceID)
		if err != nil {
			return err
		}
		if dom != nil { // otherwise on another host
			need += Bytes(dom)
		}
	}
	return e.checkRoom(in, need, "the memory of all guests of volume "+in.VolumeName+" on this host")
}

func (e *Env) mayMove(ctx context.Context, in *PauseInput) error {
	vol, err := e.registry.Volume(ctx, in.VolumeID)
	if err != nil {
		return request.Registry(err)
	}
	atts, err := e.registry.Attachments(ctx, in.VolumeID, "")
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
	err = e.parts.CheckPaused(ctx, vol, own, ids)
	if api.CodeOf(err) == api.CodeHypervisorUnavailable {
		return request.AwaitHypervisor(err)
	}
	return err
}

func saveTooLate(in *PauseInput, yes bool) error {
	if !yes {
		return nil
	}
	return subject.Forbidden("save", in.InstanceName, "migration %s has asked for it to be restored already", in.MigrationID)
}

func (e *Env) pausedDomain(ctx context.Context, in *PauseInput) (*hv.Domain, error) {
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	if err == nil && dom == nil {
		err = api.Errorf(api.CodeNotFound, "instance %s is not defined on this host; `%s` says what is known", in.InstanceName, shell.Line("volferryctl", "instance", "show", in.InstanceName))
	}
	return dom, err
}

// AdmitSave repeats the checks while no other op works on the instance. Its output is CheckSave's
// result.
func (e *Env) AdmitSave(ctx context.Context, r *op.Run, in *PauseInput) error {
	inst, err := e.registry.Instance(ctx, in.InstanceID)
	if err != nil {
		return request.Registry(err)
	}
	if err := lockedFor(inst, in.MigrationID); err != nil {
		return err
	}
	before, err := e.CheckSave(ctx, in)
	if err != nil {
		return err
	}
	return r.SetOutput(before)
}

// admittedState returns AdmitSave's output. If it is not zero, an earlier op has saved the
// instance, and this op neither saves nor restores it.
func admittedState(r *op.Run) (SavedState, error) {
	var was SavedState
	_, err := r.Output(subject.StepNameAdmit, &was)
	return was, err
}

// StepPauseGuard guards the instance before its process ends. The undo removes the guard, unless
// the guest stays saved or an earlier op had guarded it.
func (e *Env) StepPauseGuard() op.Step {
	do := func(_ context.Context, _ *op.Run, in *PauseInput) error {
		return e.guards.Set(in.InstanceID, in.Owner(), in.reason())
	}
	undo := func(ctx context.Context, r *op.Run, in *PauseInput) error {
		if was, err := admittedState(r); err != nil || was.State != "" || in.Suspended {
			return err
		}
		if asleep, err := e.asleep(ctx, in); err != nil || asleep {
			return err
		}
		return e.guards.Clear(in.InstanceID, in.Owner())
	}
	observe := func(_ context.Context, _ *op.Run, in *PauseInput) (op.Observation, error) {
		has, err := e.guards.Has(in.InstanceID, in.Owner())
		return op.DoneIf(has), err
	}
	return subject.Step("guard", do, undo, observe)
}

// StepSave records the guest's state, writes the RAM to the save image and ends the process. A
// guest that powers off meanwhile suffices for the move.
func (e *Env) StepSave() op.Step {
	do := func(ctx context.Context, r *op.Run, in *PauseInput) error {
		dom, err := e.pausedDomain(ctx, in)
		if err != nil {
			return err
		}
		if err := e.notBeingSaved(ctx, in, dom); err != nil {
			return err
		}
		was := stateOf(dom)
		first, err := admittedState(r)
		if err != nil {
			return err
		}
		if noted, err := r.Noted(subject.StepNameSave, &SavedState{}); err != nil {
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
			return e.recoverSaveImage(ctx, in)
		}
		return e.saveMemory(ctx, in)
	}
	undo := func(ctx context.Context, r *op.Run, in *PauseInput) error {
		var was SavedState
		if noted, err := r.Noted(subject.StepNameSave, &was); err != nil || !noted || !was.hadMemory() {
			return err
		}
		if first, err := admittedState(r); err != nil || first.State != "" {
			return err
		}
		err := e.unsave(ctx, in, was)
		if api.CodeOf(err) == api.CodeNeedsOperator {
			e.log.Warn("an instance that was saved stays so until its restore is asked for", "instance", in.InstanceName, "err", err)
			return nil
		}
		return err
	}
	observe := func(ctx context.Context, r *op.Run, in *PauseInput) (op.Observation, error) {
		var was SavedState
		noted, err := r.Noted(subject.StepNameSave, &was)
		if err != nil || !noted {
			return op.NotDone, err
		}
		dom, err := e.pausedDomain(ctx, in)
		if err != nil || dom.State.Active() {
			return op.NotDone, err
		}
		if parts, err := partPaths(in); err != nil || len(parts) > 0 {
			return op.NotDone, err
		}
		return op.Done, r.SetOutput(was)
	}
	return subject.Step(subject.StepNameSave, do, undo, observe)
}

func (e *Env) saveMemory(ctx context.Context, in *PauseInput) error {
	// The guest runs, so an earlier save image of it is outdated.
	if err := removeSaveImage(in); err != nil {
		return err
	}
	if err := e.parts.StoodStill(ctx, in.MigrationID, in.InstanceID); err != nil {
		return err
	}
	err := e.saves.SaveMemory(ctx, in.InstanceID, e.partPath(in))
	switch {
	case err == nil:
		return e.commitSaveImage(ctx, in)
	case errors.Is(err, hv.ErrNotActive): // it powered off
		return e.recoverSaveImage(ctx, in)
	}
	return in.Refusal("save", err)
}

// notBeingSaved makes the op wait while libvirt saves the guest for an earlier, dead daemon: the
// file of that save must not be touched.
func (e *Env) notBeingSaved(ctx context.Context, in *PauseInput, dom *hv.Domain) error {
	saving := dom.State == hv.StateOther
	if dom.State.Active() && !saving {
		var err error
		if saving, err = e.saves.SavingMemory(ctx, in.InstanceID); err != nil {
			return request.HV(err)
		}
	}
	if saving {
		return op.WaitFor(waitSave, api.Errorf(api.CodeInstanceBusy, "instance %s is being saved already", in.InstanceName))
	}
	return nil
}

// unsave brings back a guest after its save has begun. If the guest cannot be restored
// (needs_operator), it stays saved, until the registry or an operator requests its restore.
func (e *Env) unsave(ctx context.Context, in *PauseInput, was SavedState) error {
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	if err == nil && dom != nil {
		err = e.notBeingSaved(ctx, in, dom)
	}
	if err != nil {
		return err
	}
	if dom == nil || !dom.State.Active() {
		if err := e.recoverSaveImage(ctx, in); err != nil {
			return err
		}
		if err := e.othersStandStill(ctx, in); err != nil {
			return err
		}
		if _, err := e.wake(ctx, in, was); err != nil {
			return err
		}
	}
	if err := removeSaveImage(in); err != nil {
		return err
	}
	return e.resumeGuest(ctx, in, was)
}

// othersStandStill refuses (needs_operator) to restore a guest while another guest of this host
// runs with the volume open, as after `virsh resume`: its writes are newer than the saved memory.
func (e *Env) othersStandStill(ctx context.Context, in *PauseInput) error {
	doms, err := e.domains.Domains(ctx)
	if err != nil {
		return request.HV(err)
	}
	for i := range doms {
		dom := &doms[i]
		if dom.ID == in.InstanceID || dom.State != hv.StateRunning {
			continue
		}
		open, err := location.Opens(ctx, e.domains, dom, in.Location.Path)
		if err != nil {
			return request.HV(err)
		}
		if open {
			return in.needsOperator(fmt.Errorf("instance %s runs, and may have written what its memory does not know of", dom.Name))
		}
	}
	return nil
}

const stepNameReleased = "released"

// StepReleased verifies that no process of this host has the volume open, except guests that are
// paused and saved later. Then it writes the volume's cached pages to stable storage for other
// hosts.
func (e *Env) StepReleased() op.Step {
	return subject.Step(stepNameReleased, func(ctx context.Context, r *op.Run, in *PauseInput) error {
		doms, err := e.domains.Domains(ctx)
		if err != nil {
			return request.HV(err)
		}
		atts, err := e.registry.Attachments(ctx, in.VolumeID, "")
		if err != nil {
			return request.Registry(err)
		}
		for i := range doms {
			if err := e.mayHaveOpen(ctx, in, &doms[i], atts); err != nil {
				return err
			}
		}
		user, err := e.images.InUse(ctx, in.Location.Path, nil)
		if err != nil {
			return err
		}
		if user != "" {
			return in.stillOpen(user)
		}
		err = e.disconnect(ctx, r, in, doms)
		var lost *image.NotStoredError
		if errors.As(err, &lost) {
			return api.Errorf(api.CodeIOError, "cannot move volume %s with all its guests paused: %v, so that another host may read what was there before; mend the storage, and look at what the guests have, before you migrate it again: that goes on with what is stored",
				in.VolumeName, err)
		}
		return err
	}, nil, nil)
}

// releasedNote is written before the volume's image is flushed.
type releasedNote struct {
	Flushing bool `json:"flushing"`
}

// disconnect writes the cached pages of the volume's image to stable storage. The kernel reports
// lost writes once. If a guest has the cache mode unsafe, QEMU did not flush as it saved the guest,
// so a flush that the daemon did not survive counts as failed.
func (e *Env) disconnect(ctx context.Context, r *op.Run, in *PauseInput, doms []hv.Domain) error {
	var note releasedNote
	if _, err := r.Noted(stepNameReleased, &note); err != nil {
		return err
	}
	if note.Flushing {
		return image.FlushUnknown(in.Location.Path)
	}
	alone := slices.ContainsFunc(doms, func(dom hv.Domain) bool { return writesUnflushed(&dom, in.Location.Path) })
	return image.FlushNoted(ctx, alone,
		func(flushing bool) error { return r.Note(ctx, releasedNote{Flushing: flushing}) },
		func() error { return e.images.Disconnect(ctx, in.Location.Path) })
}

// writesUnflushed reports whether a domain, which may be saved, has the image on a disk with the
// cache mode unsafe.
func writesUnflushed(dom *hv.Domain, path string) bool {
	return slices.ContainsFunc(slices.Concat(dom.Live, dom.Config), func(d hv.Disk) bool {
		return d.Cache == hv.CacheUnsafe && slices.ContainsFunc(d.Chain, func(img hv.Image) bool { return img.Path == path })
	})
}

// mayHaveOpen refuses a domain that has the volume open, unless it is a paused instance of the
// volume, which will be saved.
func (e *Env) mayHaveOpen(ctx context.Context, in *PauseInput, dom *hv.Domain, atts []api.Attachment) error {
	open, err := location.Opens(ctx, e.domains, dom, in.Location.Path)
	if err != nil || !open {
		return request.HV(err)
	}
	refused := in.stillOpen("instance " + dom.Name)
	switch {
	case !slices.ContainsFunc(atts, func(a api.Attachment) bool { return a.InstanceID == dom.ID }):
		return refused
	case dom.State == hv.StatePaused:
		return nil
	}
	return refused.With(ranOnDetail, true).With(instanceDetail, dom.ID) // it was suspended like all guests
}

func (in *PauseInput) stillOpen(who string) *api.Error {
	return api.Errorf(api.CodeVolumeInUse, "cannot move volume %s with all its guests paused: %s is still in use: %s", in.VolumeName, in.Location.Path, who)
}
