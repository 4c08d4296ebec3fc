// SPDX-License-Identifier: Apache-2.0

// Package diskspec defines the disk of a domain for an attachment, and checks whether a disk of
// the domain matches an attachment.
package diskspec

import (
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// New returns the disk for an attachment of a volume. chain has the images of the volume, top
// first, and at least one. The disk's serial is the volume's id; a guest finds its first 20
// characters under /dev/disk/by-id. slot, if not nil, has the definition of the previous disk at
// this device: the new disk gets its settings, and also its serial, unless that serial was the id
// of the previous volume.
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

// BusOf returns the bus of a disk with this device name, if no definition names a bus.
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
