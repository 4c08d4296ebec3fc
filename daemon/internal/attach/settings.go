// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// A data volume that returns to an instance gets the settings of its previous disk: limits, cache,
// queues, threads, error policies, names. It gets its previous device if free, unless another is
// requested.

// chooseSlot chooses the device of a data volume, and the recorded disk that gives it its
// settings. root is as in chooseDevice.
func (e *env) chooseSlot(in *input, asked api.VolumeAttach, dom *hv.Domain, inst api.Instance, root *hv.Disk) (err error) {
	was := inst.Detached(in.VolumeID)
	if asked.DefaultSettings {
		was = nil
	}
	if asked.Device == "" && was != nil && freeAgain(was.Device, dom, inst, root) {
		in.Device = was.Device
	} else if in.Device, err = chooseDevice(asked.Device, dom, inst, root); err != nil {
		return err
	}
	s := slot(in.Device, inst)
	switch {
	case asked.DefaultSettings:
		return nil
	case was == nil && s != nil:
		in.Slot = s.Slot // this slot had another volume's disk; its boot order stays
		return nil
	case was == nil:
		return nil
	case in.Device[:2] != was.Device[:2]:
		return api.Errorf(api.CodeInvalidArgument,
			"cannot attach volume %s as %s: it was %s of instance %s, and the settings that it had there are those of its bus; choose a device %s..., or --default-settings for a new disk without them",
			in.VolumeName, in.Device, was.Device, inst.Name, was.Device[:2])
	}
	in.Slot, in.WasRoot = &was.Slot, inst.WasRoot(was)
	return e.comesBackWhole(in)
}

func freeAgain(device string, dom *hv.Domain, inst api.Instance, root *hv.Disk) bool {
	s := slot(device, inst)
	return len(device) > len("vd") && !taken(device, dom) && (root == nil || !bootsBefore(device, root)) &&
		(s == nil || (s.VolumeID == nil && s.Note == "" && !api.IsRoot(s.BootIndex)))
}

func (e *env) comesBackWhole(in *input) error {
	was, err := e.slotDisk(in)
	if err != nil {
		return err
	}
	what := was.Uncarried
	if was.Transient {
		what = "<transient/>"
	}
	if what == "" {
		return nil
	}
	return api.Errorf(api.CodeUnsupportedDisk, "cannot attach volume %s to instance %s as the disk that it was there: that had %s; --default-settings makes it a new disk, without the settings of then",
		in.VolumeName, in.InstanceName, what)
}
