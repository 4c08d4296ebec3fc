// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"slices"

	"github.com/volferry/volferry/daemon/internal/diskspec"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// chooseDevice returns the requested device, or the first virtio disk that is free in the live
// domain, the definition, and the registry's slots. root is the recorded disk of an empty root
// slot, or nil.
func chooseDevice(asked string, dom *hv.Domain, inst api.Instance, root *hv.Disk) (string, error) {
	if asked == "" {
		for n := 0; ; n++ {
			device := "vd" + letters(n)
			s := slot(device, inst)
			if !taken(device, dom) && !bootsBefore(device, root) && (s == nil || (s.VolumeID == nil && s.BootIndex == nil && s.Note == "")) {
				return device, nil
			}
		}
	}
	s := slot(asked, inst)
	switch {
	case s != nil && s.VolumeID == nil && api.IsRoot(s.BootIndex):
		return "", api.Errorf(api.CodeRootAttachForbidden, "cannot attach root device volume: device %s of instance %s is what it boots from; say so (--root), or choose another device", asked, inst.Name)
	case taken(asked, dom), s != nil && (s.VolumeID != nil || s.Note != ""):
		return "", api.Errorf(api.CodeConflict, "device %s of instance %s is taken; leave --device out and the next free one is used", asked, inst.Name)
	case bootsBefore(asked, root):
		return "", api.Errorf(api.CodeConflict, "device %s of instance %s would come before %s, from which it boots as the first of its disks and which is empty now; choose a later one, or attach the root volume first",
			asked, inst.Name, root.Target)
	case diskspec.BusOf(asked) == "scsi" && !hasSCSI(dom):
		return "", api.Errorf(api.CodeUnsupportedDisk, "instance %s has no SCSI disk, so it may have no SCSI controller for %s; use a virtio device (vdb)", inst.Name, asked)
	}
	return asked, nil
}

func letters(n int) string {
	const alphabet = 26
	if n < alphabet {
		return string(rune('a' + n))
	}
	return letters(n/alphabet-1) + letters(n%alphabet)
}

// bootsBefore reports whether a disk at this device would boot before root, a detached root disk.
// A root without a boot number boots first; libvirt orders the disks of a bus by name.
func bootsBefore(device string, root *hv.Disk) bool {
	return root != nil && root.BootOrder == 0 && root.Bus == diskspec.BusOf(device) &&
		(len(device) < len(root.Target) || len(device) == len(root.Target) && device < root.Target)
}

func taken(device string, dom *hv.Domain) bool {
	return dom.LiveDisk(device) != nil || dom.ConfigDisk(device) != nil
}

func slot(device string, inst api.Instance) *api.BlockDeviceMapping {
	i := slices.IndexFunc(inst.BlockDeviceMappings, func(b api.BlockDeviceMapping) bool { return b.Device == device })
	if i < 0 {
		return nil
	}
	return &inst.BlockDeviceMappings[i]
}

func hasSCSI(dom *hv.Domain) bool {
	return slices.ContainsFunc(dom.Config, func(d hv.Disk) bool { return d.Bus == "scsi" }) &&
		(!dom.State.Active() || slices.ContainsFunc(dom.Live, func(d hv.Disk) bool { return d.Bus == "scsi" }))
}
