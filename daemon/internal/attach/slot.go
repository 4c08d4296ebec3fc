// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// remembered is the disk's definition before the detach, for an exact restore; empty without a
// disk.
type remembered struct {
	Config         string `json:"config,omitempty"`
	Live           string `json:"live,omitempty"`
	SerialOfVolume bool   `json:"serial_of_volume,omitempty"`
}

// keptSlots returns the recorded disks of the instance's other empty slots, for later volumes. A
// slot with a queued release is empty before the registry knows it. Queued releases are read
// first: if one is carried out between the reads, the registry has it.
func (e *env) keptSlots(ctx context.Context, in *input) ([]string, error) {
	var kept []string
	for _, gone := range e.queued() {
		stays := gone.Root || gone.BootIndex != nil // other slots are removed with their volume
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

func (e *env) slotDisk(in *input) (*hv.Disk, error) {
	return e.diskOf(in.Slot, in.Device, in.InstanceName)
}

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
	d, err := e.Disks.ParseDisk(slot.Disk)
	if err != nil {
		return nil, fmt.Errorf("read what is known of slot %s of instance %s: %w", device, instanceName, err)
	}
	return &d, nil
}

// slotKept returns the record of the detached disk, from before the detach or before its attach.
func (in *input) slotKept(r *op.Run) (*api.SlotDefinition, error) {
	var kept remembered
	if _, err := r.Output(stepNameRemember, &kept); err != nil || cmp.Or(kept.Config, kept.Live) == "" {
		return in.Slot, err
	}
	return &api.SlotDefinition{Disk: cmp.Or(kept.Config, kept.Live), SerialOfVolume: kept.SerialOfVolume}, nil
}

// serialOf returns the disk's required serial: the volume's id, or the recorded disk's serial.
func serialOf(in *input, was *hv.Disk) string {
	if was == nil || in.Slot.SerialOfVolume {
		return in.VolumeID
	}
	return was.Serial
}
