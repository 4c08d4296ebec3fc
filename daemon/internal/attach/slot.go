// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// remembered is the disk as it was, so that it can come back exactly so. A
// definition is empty where there was no disk.
type remembered struct {
	Config string `json:"config,omitempty"`
	Live   string `json:"live,omitempty"`
	// SerialOfVolume: the disk's serial was its volume's id.
	SerialOfVolume bool `json:"serial_of_volume,omitempty"`
}

// keptSlots are the disks that were in the empty slots of the instance but the op's own,
// in the hypervisor's words: a volume will come to each that is where the last one was.
// A slot whose release is queued is empty too, though the registry does not know yet;
// these are read first, for one that is carried out meanwhile is the registry's to tell.
func (e *env) keptSlots(ctx context.Context, in *input) ([]string, error) {
	var kept []string
	for _, gone := range e.queued() {
		stays := gone.Root || gone.BootIndex != nil // other slots go with their volume
		if stays && gone.InstanceID == in.InstanceID && gone.Device != in.Device && gone.Slot != nil {
			kept = append(kept, gone.Slot.Disk)
		}
	}
	inst, err := e.Registry.Instance(ctx, in.InstanceID)
	if err != nil {
		return nil, request.Registry(err)
	}
	for _, s := range inst.BlockDeviceMappings {
		if s.VolumeID == nil && s.Slot != nil && s.Device != in.Device {
			kept = append(kept, s.Slot.Disk)
		}
	}
	return kept, nil
}

// slotDisk is the disk that was in the slot of a root volume, nil if that is not
// known.
func (e *env) slotDisk(in *input) (*hv.Disk, error) {
	return e.diskOf(in.Slot, in.Device, in.InstanceName)
}

// rootAway is the disk that was in the root slot of an instance, nil if that has a
// volume, or nothing is known of it.
func (e *env) rootAway(inst api.Instance) (*hv.Disk, error) {
	s := inst.RootSlot()
	if s == nil || s.VolumeID != nil {
		return nil, nil //nolint:nilnil // it is not away
	}
	return e.diskOf(s.Slot, s.Device, inst.Name)
}

func (e *env) diskOf(slot *api.SlotDefinition, device, instanceName string) (*hv.Disk, error) {
	if slot == nil {
		return nil, nil //nolint:nilnil // nothing is known, which is no error
	}
	d, err := e.HV.ParseDisk(slot.Disk)
	if err != nil {
		return nil, fmt.Errorf("read what is known of slot %s of instance %s: %w", device, instanceName, err)
	}
	return &d, nil
}

// slotKept is what is known of the disk that a volume is that goes: what was
// remembered of it before it went, or else what was known before it came.
func (in *input) slotKept(r *op.Run) (*api.SlotDefinition, error) {
	var kept remembered
	if _, err := r.Output(stepNameRemember, &kept); err != nil || cmp.Or(kept.Config, kept.Live) == "" {
		return in.Slot, err
	}
	return &api.SlotDefinition{Disk: cmp.Or(kept.Config, kept.Live), SerialOfVolume: kept.SerialOfVolume}, nil
}

// serialOf is the serial that the disk has to have: the volume's id, or that of the
// disk that was there, if it had one of its own.
func serialOf(in *input, was *hv.Disk) string {
	if was == nil || in.Slot.SerialOfVolume {
		return in.VolumeID
	}
	return was.Serial
}
