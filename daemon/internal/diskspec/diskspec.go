// SPDX-License-Identifier: Apache-2.0

// Package diskspec says which disk of a domain an attachment is: what it is made as, and
// how what is there compares with it. The package must not know who attaches, nor when.
package diskspec

import (
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// New is the disk that an attachment of a volume is to be, with this chain, top first. Its
// serial is the volume's id as it is: a guest finds the first 20 characters of it under
// /dev/disk/by-id. With a slot, where it is not nil, the disk keeps what the slot has,
// and the serial of the slot if that was not the id of its volume.
func New(volumeID string, at api.DiskAttachment, shareable bool, chain []hv.Image, slot *api.SlotDefinition) hv.DiskSpec {
	spec := hv.DiskSpec{
		Target: at.Device, Bus: BusOf(at.Device), Serial: volumeID, Image: chain[0],
		ReadOnly: at.Mode == api.ModeRO, Shareable: shareable,
	}
	if len(chain) > 1 {
		spec.Backing = chain[1:]
	}
	if slot != nil {
		spec.Slot = slot.Disk
		if !slot.SerialOfVolume {
			spec.Serial = ""
		}
	}
	return spec
}

// BusOf is the bus of a disk by the name of its device, where nothing else is known of it.
func BusOf(device string) string {
	if strings.HasPrefix(device, "sd") {
		return "scsi"
	}
	return "virtio"
}

// ModeOf is how a guest may use a disk.
func ModeOf(d *hv.Disk) api.Mode {
	if d.ReadOnly {
		return api.ModeRO
	}
	return api.ModeRW
}

// InMode says whether a guest may use a disk as its attachment says.
func InMode(d *hv.Disk, at api.DiskAttachment) bool { return ModeOf(d) == at.Mode }
