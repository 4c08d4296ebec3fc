// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

type beginNote struct {
	// From is the attachment's state before the detach.
	From api.AttachmentState `json:"from,omitempty"`
	// Skipped is true if the registry did not answer, or has a state that permits no detach.
	Skipped bool `json:"skipped,omitempty"`
}

type detachSteps struct{ *env }

// stepBegin reports the detach to the registry, so that no migration of the volume begins. If the
// registry does not answer, the detach continues: a new migration needs the registry too, and this
// host's journal shows an open one.
func (e detachSteps) stepBegin() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		if err := e.notMoving(ctx, in); err != nil {
			return err
		}
		att, err := e.Registry.Attachment(ctx, in.AttachmentID)
		switch {
		case request.Away(err):
			return r.Note(ctx, beginNote{Skipped: true})
		case err != nil:
			return err
		}
		note := beginNote{From: att.State}
		var before beginNote
		if again, err := r.Noted(stepNameBegin, &before); err != nil {
			return err
		} else if again && before.From != "" {
			note.From = before.From
		}
		note.Skipped = !slices.Contains(beginsFrom, att.State)
		if err := r.Note(ctx, note); err != nil || note.Skipped {
			return err
		}
		e.freshen(ctx, in)
		err = e.transition(ctx, r, in, stepNameBegin, api.AttachmentDetaching, beginsFrom...)
		if request.Away(err) {
			note.Skipped = true
			return r.Note(ctx, note)
		}
		return err
	}
	undo := func(ctx context.Context, r *op.Run, in *input) error { return e.giveUp(ctx, r, in) }
	observe := func(ctx context.Context, r *op.Run, in *input) (op.Observation, error) {
		var note beginNote
		if _, err := r.Noted(stepNameBegin, &note); err != nil || note.Skipped {
			return op.DoneIf(note.Skipped), err
		}
		att, _, err := e.row(ctx, in)
		if request.Away(err) {
			return op.NotDone, nil // stepBegin asks again, and then may skip
		}
		return op.DoneIf(att.State == api.AttachmentDetaching), err
	}
	return step(stepNameBegin, do, undo, observe)
}

// beginsFrom are the states that permit a detach. In another state, the registry learns of the
// detach only at the release.
var beginsFrom = []api.AttachmentState{api.AttachmentAttached, api.AttachmentError}

// giveUp ends the registry's state detaching, because the guest keeps the disk. The state may be
// from stepBegin, even if its answer was lost, or from an ended op.
func (e detachSteps) giveUp(ctx context.Context, r *op.Run, in *input) error {
	var note beginNote
	if _, err := r.Noted(stepNameBegin, &note); err != nil {
		return err
	}
	att, found, err := e.row(ctx, in)
	if err != nil || !found || att.State != api.AttachmentDetaching {
		return err
	}
	to := api.AttachmentAttached
	if note.From == api.AttachmentError {
		to = api.AttachmentError
	}
	err = e.asOfNow(ctx, in, func(epoch int64, again string) error {
		return e.transitionIn(ctx, r, in, epoch, "give_up"+again, to, api.AttachmentDetaching)
	})
	if request.Lost(err) {
		e.log.Warn("an attachment that was to be kept is not this host's any more", "attachment", in.AttachmentID, "err", err)
		return nil
	}
	return err
}

// notMoving refuses a volume that a migration of this host moves, according to the journal. If a
// guard shows that the instance is saved while a volume moves, it refuses any volume of the
// instance: the guest's restore needs the disk, and the registry, which has the instance locked,
// may not answer.
func (e *env) notMoving(ctx context.Context, in *input) error {
	guards, err := e.Guards.Of(in.InstanceID)
	if err != nil {
		return err
	}
	for _, g := range guards {
		if strings.HasPrefix(g.Owner, guard.OwnerPause) {
			return api.Errorf(api.CodeInstanceBusy, "cannot detach volume %s: %s", in.VolumeName, g.Reason)
		}
	}
	open, err := e.Migrations.List(ctx, false)
	if err != nil {
		return err
	}
	for i := range open {
		if open[i].VolumeID == in.VolumeID {
			return api.Errorf(api.CodeMigrationActive, "cannot detach volume %s: migration %s is moving it; complete or cancel that first",
				in.VolumeName, open[i].ID).With("migration_id", open[i].ID)
		}
	}
	return nil
}

func (e detachSteps) stepRemember() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		v, err := e.look(ctx, in)
		switch {
		case err != nil:
			return err
		case v.config == odd || v.live == odd:
			return in.changed(v)
		}
		if err := e.checkDetachBesideMoves(ctx, in, v); err != nil {
			return err
		}
		if err := in.onItsImage(in.cannotDetach(), v); err != nil {
			return err
		}
		if err := in.comesBack(v.dom); err != nil {
			return err
		}
		if in.Root {
			if err := in.off(rootDetach, v.dom); err != nil {
				return err
			}
		}
		if v.dom != nil && !v.active {
			if err := in.notSaved(v); err != nil {
				return err
			}
		}
		var kept remembered
		if v.config == attached {
			kept.SerialOfVolume = v.configDisk.Serial == in.VolumeID
			if kept.Config, err = e.Disks.DiskDefinition(ctx, in.InstanceID, hv.Config, in.Device); err != nil {
				return volatile(err)
			}
		}
		if v.live == attached {
			kept.SerialOfVolume = kept.SerialOfVolume || (kept.Config == "" && v.liveDisk.Serial == in.VolumeID)
			if kept.Live, err = e.Disks.DiskDefinition(ctx, in.InstanceID, hv.Live, in.Device); err != nil {
				return volatile(err)
			}
		}
		for _, def := range []string{kept.Config, kept.Live} {
			if err := e.comesBackAs(in, def); err != nil {
				return err
			}
		}
		return r.SetOutput(kept)
	}
	return step(stepNameRemember, do, nil, nil)
}

// comesBack refuses a disk that could not be attached again: a LUKS disk, because its secret is
// not kept, and a disk with settings that would be lost.
func (in *input) comesBack(dom *hv.Domain) error {
	if dom == nil {
		return nil
	}
	for _, d := range []*hv.Disk{dom.ConfigDisk(in.Device), dom.LiveDisk(in.Device)} {
		if d != nil && d.IsLUKS() {
			return api.Errorf(api.CodeUnsupportedDisk, "cannot detach volume %s: disk %s of instance %s is encrypted by QEMU (LUKS), and such a volume is not attached again so far",
				in.VolumeName, in.Device, in.InstanceName)
		}
		if d != nil && d.Uncarried != "" {
			return api.Errorf(api.CodeUnsupportedDisk,
				"cannot detach volume %s: disk %s of instance %s has %s, which it would come back without; `%s` shows it, and who keeps that may take the disk out (`%s`) and then end the attachment (`%s`)",
				in.VolumeName, in.Device, in.InstanceName, d.Uncarried, shell.Line("virsh", "dumpxml", "--", in.InstanceName), shell.Line("virsh", "detach-disk", "--", in.InstanceName, in.Device), shell.Line("volferryctl", "attachment", "delete", in.AttachmentID, "--force"))
		}
	}
	return nil
}

// comesBackAs is comesBack for a full definition; an empty one means no disk.
func (e detachSteps) comesBackAs(in *input, definition string) error {
	if definition == "" {
		return nil
	}
	d, err := e.Disks.ParseDisk(definition)
	if err != nil {
		return fmt.Errorf("read disk %s of instance %s: %w", in.Device, in.InstanceName, err)
	}
	return in.comesBack(&hv.Domain{Config: []hv.Disk{d}})
}

// volatile is request.HV for calls on a domain that just existed: if it is gone, the step is
// repeated.
func volatile(err error) error {
	if errors.Is(err, hv.ErrNotFound) || errors.Is(err, hv.ErrNotActive) {
		return op.Retry(request.BusyDelay, err)
	}
	return request.HV(err)
}

func (e detachSteps) stepDetachConfig() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *input) error {
		v, err := e.look(ctx, in)
		switch {
		case err != nil || v.config == absent:
			return err
		case v.config == odd:
			return in.changed(v)
		}
		return request.HV(e.Disks.DetachDisk(ctx, in.InstanceID, hv.Config, in.Device))
	}
	undo := func(ctx context.Context, r *op.Run, in *input) error {
		if err := e.putBack(ctx, r, in, hv.Config); err != nil {
			return err
		}
		return e.putBack(ctx, r, in, hv.Live) // a guest started after the undo of stepDetachLive lacks the disk
	}
	observe := func(ctx context.Context, _ *op.Run, in *input) (op.Observation, error) {
		v, err := e.look(ctx, in)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(v.config == absent), nil
	}
	return step(stepNameDetachConfig, do, undo, observe)
}

func (e detachSteps) putBack(ctx context.Context, r *op.Run, in *input, where hv.Where) error {
	var kept remembered
	if _, err := r.Output(stepNameRemember, &kept); err != nil {
		return err
	}
	v, err := e.sure(ctx, in)
	if err != nil {
		return err
	}
	def, is, needed := kept.Config, v.config, v.dom != nil && v.dom.Persistent
	if where == hv.Live {
		def, is, needed = kept.Live, v.live, v.active
		if def == "" && needed {
			def = kept.Config // the guest was off when the disk was recorded, and was started later
		}
	}
	switch {
	case def == "" || !needed || is == attached:
		return nil
	case is == odd:
		return in.stands(v, attached)
	}
	err = e.Disks.AttachDisk(ctx, in.InstanceID, where, hv.DiskSpec{Target: in.Device, Definition: def})
	if errors.Is(err, hv.ErrExists) {
		return in.stands(v, attached)
	}
	if err != nil {
		return volatile(err)
	}
	return op.Retry(0, errLookAgain)
}

var errLookAgain = errors.New("the disk was put back and is to be looked at")

// stepDetachLive waits until no process has the disk and no start will bring it back. It is the
// commit point, because released disks are not given back.
func (e detachSteps) stepDetachLive() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		asking := func(v *view) error { return r.Note(ctx, unplugNote{Asked: e.Unplugs.processOf(v)}) }
		if err := e.unplugAfter(ctx, in, asking); err != nil {
			return err
		}
		v, err := e.sure(ctx, in)
		switch {
		case err != nil:
			return err
		case v.config != absent || v.live != absent:
			return in.changed(v)
		case v.saved:
			return in.notSaved(v)
		}
		if err := in.onItsImage(in.cannotDetach(), v); err != nil {
			return err
		}
		return r.Note(ctx, unplugNote{Gone: true})
	}
	undo := func(ctx context.Context, r *op.Run, in *input) error {
		var note unplugNote
		if _, err := r.Noted(stepNameDetachLive, &note); err != nil {
			return err
		}
		e.Unplugs.add(in, note.Asked)
		return e.putBack(ctx, r, in, hv.Live)
	}
	observe := func(ctx context.Context, r *op.Run, in *input) (op.Observation, error) {
		v, gone, err := e.lookGone(ctx, r, in)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(v.gone() || gone && v.live == absent && v.config == absent), nil
	}
	return step(stepNameDetachLive, do, undo, observe)
}

func (e detachSteps) lookGone(ctx context.Context, r *op.Run, in *input) (*view, bool, error) {
	var note unplugNote
	last := stepNameDetachLive
	if in.Root {
		last = stepNameStayOff
	}
	if _, err := r.Noted(last, &note); err != nil {
		return nil, false, err
	}
	v, err := e.sure(ctx, in)
	return v, note.Gone, err
}
