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

// remembered has the definitions of the disk before its detach, so that the disk can return
// unchanged. They are empty without a disk.
type remembered struct {
	Config         string `json:"config,omitempty"`
	Live           string `json:"live,omitempty"`
	SerialOfVolume bool   `json:"serial_of_volume,omitempty"`
}

// keptSlots returns the recorded disks of the instance's other empty slots, which later volumes
// will get. A slot with a queued release is empty, although the registry does not know it. Queued
// releases are read first, in case one ends between the reads.
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
		return nil, nil //nolint:nilnil // the root is not away
	}
	return e.diskOf(s.Slot, s.Device, inst.Name)
}

func (e *env) diskOf(slot *api.SlotDefinition, device, instanceName string) (*hv.Disk, error) {
	if slot == nil {
		return nil, nil //nolint:nilnil // an unknown disk is no error
	}
	d, err := e.Disks.ParseDisk(slot.Disk)
	if err != nil {
		return nil, fmt.Errorf("read what is known of slot %s of instance %s: %w", device, instanceName, err)
	}
	return &d, nil
}

func (in *input) slotKept(r *op.Run) (*api.SlotDefinition, error) {
	var kept remembered
	if _, err := r.Output(stepNameRemember, &kept); err != nil || cmp.Or(kept.Config, kept.Live) == "" {
		return in.Slot, err
	}
	return &api.SlotDefinition{Disk: cmp.Or(kept.Config, kept.Live), SerialOfVolume: kept.SerialOfVolume}, nil
}

func serialOf(in *input, was *hv.Disk) string {
	if was == nil || in.Slot.SerialOfVolume {
		return in.VolumeID
	}
	return was.Serial
}
