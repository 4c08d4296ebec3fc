// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"slices"

	"github.com/volferry/volferry/daemon/internal/diskspec"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

type attachSteps struct{ *env }

// stepAttachConfig adds the disk to the persistent definition before the hotplug. So every later
// boot has the address that libvirt chose.
func (e attachSteps) stepAttachConfig() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		v, err := e.look(ctx, in)
		if err != nil || v.config == attached {
			return err
		}
		if err := in.mayAttach(v); err != nil {
			return err
		}
		disk := in.disk()
		if disk.Reserved, err = e.keptSlots(ctx, in); err != nil {
			return err
		}
		if err := r.Note(ctx, namedNote{Named: true}); err != nil {
			return err
		}
		return in.attachError(e.define(ctx, in, v.dom, disk))
	}
	undo := func(ctx context.Context, _ *op.Run, in *input) error {
		v, err := e.sure(ctx, in)
		switch {
		case err != nil:
			return err
		case v.config == odd:
			return in.stands(v, absent)
		case v.config == attached:
			if err := e.Disks.DetachDisk(ctx, in.InstanceID, hv.Config, in.Device); err != nil {
				return request.HV(err)
			}
		}
		if err := e.seenWithout(ctx, in); err != nil || !in.Root {
			return err
		}
		return e.takeBack(ctx, in, false) // there is no live step that would
	}
	observe := func(ctx context.Context, _ *op.Run, in *input) (op.Observation, error) {
		v, err := e.look(ctx, in)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(v.config == attached), nil
	}
	return step(stepNameAttachConfig, do, undo, observe)
}

// define adds the disk to the definition. A data disk that returns gets its previous address,
// unless another disk uses that.
func (e attachSteps) define(ctx context.Context, in *input, dom *hv.Domain, disk hv.DiskSpec) error {
	if disk.Slot == "" || in.Root {
		return e.Disks.AttachDisk(ctx, in.InstanceID, hv.Config, disk)
	}
	was, err := e.slotDisk(in)
	if err != nil {
		return err
	}
	disk.NewAddress = slices.ContainsFunc(dom.Live, func(d hv.Disk) bool { return d.SamePlace(was) })
	err = e.Disks.AttachDisk(ctx, in.InstanceID, hv.Config, disk)
	if disk.NewAddress || (!errors.Is(err, hv.ErrExists) && !errors.Is(err, hv.ErrUnsupported)) {
		return err
	}
	disk.NewAddress = true
	return e.Disks.AttachDisk(ctx, in.InstanceID, hv.Config, disk)
}

// namedNote is written before the definition gets the disk: from then on the guest, and its save
// image, may have the disk.
type namedNote struct {
	Named bool `json:"named"`
}

func (e attachSteps) seenWithout(ctx context.Context, in *input) error {
	v, err := e.sure(ctx, in)
	if err == nil && v.config != absent {
		err = op.Retry(request.BusyDelay, in.changed(v))
	}
	return err
}

func (in *input) disk() hv.DiskSpec {
	spec := diskspec.New(in.VolumeID, in.DiskAttachment, in.Shareable, in.chain(), in.Slot)
	switch {
	case in.Slot != nil:
		spec.NoBootOrder = in.WasRoot
	case in.Root:
		spec.BootOrder = 1
	}
	return spec
}

func (in *input) mayAttach(v *view) error {
	switch {
	case v.dom == nil:
		return api.Errorf(api.CodeNotFound, "instance %s is not defined on this host any more", in.InstanceName)
	case v.config == odd || v.live == odd:
		return in.changed(v)
	case v.configDisk != nil:
		return in.deviceTaken()
	case in.Root:
		if err := in.off(rootAttach, v.dom); err != nil {
			return err
		}
	}
	return checkDomain("cannot attach volume "+in.VolumeName, v.dom)
}

func (in *input) deviceTaken() error {
	return api.Errorf(api.CodeConflict, "cannot attach volume %s: device %s of instance %s, or its address, was taken meanwhile; try again", in.VolumeName, in.Device, in.InstanceName)
}

func (in *input) attachError(err error) error {
	switch {
	case errors.Is(err, hv.ErrExists):
		return in.deviceTaken()
	case errors.Is(err, hv.ErrInUse):
		return api.Errorf(api.CodeVolumeInUse, "cannot attach volume %s: %v", in.VolumeName, err)
	case errors.Is(err, hv.ErrUnsupported) && in.Slot != nil && !in.Root:
		return api.Errorf(api.CodeUnsupportedDisk, "cannot attach volume %s to instance %s as the disk that it was there: %v; --default-settings makes it a new disk, without the settings of then",
			in.VolumeName, in.InstanceName, err)
	}
	return request.HV(err)
}

// plugNote is written before the hotplug: from then on a save image of the guest may have the
// disk. Seen is written once the guest was seen with the disk.
type plugNote struct {
	Plugged bool `json:"plugged"`
	Seen    bool `json:"seen,omitempty"`
}

// stepAttachLive plugs the defined disk into the running guest. A guest that is off gets it at its
// next start.
func (e attachSteps) stepAttachLive() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		v, err := e.look(ctx, in)
		if err != nil {
			return err
		}
		switch {
		case v.dom == nil || v.config != attached:
			return in.changed(v)
		case !v.active:
			return checkDomain("cannot attach volume "+in.VolumeName, v.dom)
		case v.live == attached:
			return r.Note(ctx, plugNote{Plugged: true, Seen: true})
		case v.live == odd:
			return in.changed(v)
		case v.liveDisk != nil:
			return in.deviceTaken()
		}
		if err := checkDomain("cannot attach volume "+in.VolumeName, v.dom); err != nil {
			return err
		}
		return e.plug(ctx, r, in)
	}
	undo := func(ctx context.Context, r *op.Run, in *input) error {
		var note plugNote
		if _, err := r.Noted(stepNameAttachLive, &note); err != nil {
			return err
		}
		return e.takeBack(ctx, in, note.Plugged)
	}
	observe := func(ctx context.Context, r *op.Run, in *input) (op.Observation, error) {
		var note plugNote
		if _, err := r.Noted(stepNameAttachLive, &note); err != nil {
			return op.Unknown, err
		}
		v, err := e.sure(ctx, in)
		if err != nil {
			return op.Unknown, err
		}
		has := v.live == attached || (!v.active && (!v.saved || note.Seen))
		return op.DoneIf(v.config == attached && has), nil
	}
	return step(stepNameAttachLive, do, undo, observe)
}

func (e attachSteps) plug(ctx context.Context, r *op.Run, in *input) error {
	def, err := e.Disks.DiskDefinition(ctx, in.InstanceID, hv.Config, in.Device)
	if err != nil {
		return request.HV(err)
	}
	if err := r.Note(ctx, plugNote{Plugged: true}); err != nil {
		return err
	}
	err = e.Disks.AttachDisk(ctx, in.InstanceID, hv.Live, hv.DiskSpec{Target: in.Device, Definition: def})
	if errors.Is(err, hv.ErrNotActive) {
		return op.Retry(request.BusyDelay, err) // it powered off; the next attempt sees that
	}
	if err != nil {
		return in.attachError(err)
	}
	return r.Note(ctx, plugNote{Plugged: true, Seen: true})
}

// takeBack removes the disk from the running guest, and waits as long as necessary: nothing is
// released before. It also waits for a saved guest that may have had the disk, because the guest's
// restore brings the disk back. It does not unplug a root disk, but waits until the guest is off.
func (e attachSteps) takeBack(ctx context.Context, in *input, plugged bool) error {
	letGo := e.unplug
	if in.Root {
		letGo = e.runsFromIt
	}
	err := letGo(ctx, in)
	if api.CodeOf(err) == api.CodeInstanceBusy {
		return op.WaitFor(waitGuest, err)
	}
	if err != nil {
		return err
	}
	v, err := e.sure(ctx, in)
	switch {
	case err != nil:
		return err
	case v.saved && plugged:
		return op.WaitFor(waitGuest, in.notSaved(v))
	case v.live != absent: // it was started
		return op.Retry(request.BusyDelay, in.changed(v))
	}
	return nil
}

func (e attachSteps) stepVerify() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *input) error {
		was, err := e.slotDisk(in)
		if err != nil {
			return err
		}
		v, err := e.sure(ctx, in)
		if err != nil {
			return err
		}
		check := func(p place, d *hv.Disk, where string) error {
			if p != attached {
				return in.changed(v)
			}
			return in.isWanted(d, where, serialOf(in, was))
		}
		if err := check(v.config, v.configDisk, "its definition"); err != nil || !v.active {
			return err
		}
		return check(v.live, v.liveDisk, "the running guest")
	}
	return step(stepNameVerify, do, nil, nil)
}

// runsFromIt waits until no guest runs from a root volume that it may not keep. Such a guest was
// started on a host without the hook, where guards have no effect.
func (e attachSteps) runsFromIt(ctx context.Context, in *input) error {
	v, err := e.sure(ctx, in)
	if err != nil || v.live == absent {
		return err
	}
	return op.WaitFor(waitGuest, in.off(rootAttach, v.dom))
}
