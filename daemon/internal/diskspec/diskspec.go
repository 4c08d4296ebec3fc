// SPDX-License-Identifier: Apache-2.0

// Package diskspec says which disk of a domain an attachment is: how the disk is defined,
// and whether a disk of the domain matches it. It must not know who attaches, or when.
package diskspec

import (
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// New returns the disk for an attachment of a volume, with this chain, top first. Its
// serial is the volume's id: a guest finds the first 20 characters of it under
// /dev/disk/by-id. If slot is not nil, the disk keeps what the slot has, and also the
// slot's serial if that was not the id of its volume.
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

// BusOf returns the bus of a disk by its device name, if nothing else is known of it.
func BusOf(device string) string {
	if strings.HasPrefix(device, "sd") {
		return "scsi"
	}
	return "virtio"
}

// ModeOf returns the mode in which a guest may use a disk.
func ModeOf(d *hv.Disk) api.Mode {
	if d.ReadOnly {
		return api.ModeRO
	}
	return api.ModeRW
}

// InMode reports whether a disk has the mode of its attachment.
func InMode(d *hv.Disk, at api.DiskAttachment) bool { return ModeOf(d) == at.Mode }
