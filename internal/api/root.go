// SPDX-License-Identifier: Apache-2.0

package api

import "slices"

// IsRoot reports whether bootIndex is the boot index of a root slot.
func IsRoot(bootIndex *int) bool { return bootIndex != nil && *bootIndex == 0 }

// RootSlot returns the slot that the instance boots from, or nil.
func (i *Instance) RootSlot() *BlockDeviceMapping {
	at := slices.IndexFunc(i.BlockDeviceMappings, func(b BlockDeviceMapping) bool { return IsRoot(b.BootIndex) })
	if at < 0 {
		return nil
	}
	return &i.BlockDeviceMappings[at]
}

// WasRoot reports whether the instance booted from the disk before its detach. The boot order
// belongs to the root slot and does not return with the volume.
func (i *Instance) WasRoot(was *DetachedDisk) bool {
	root := i.RootSlot()
	return root != nil && root.Device == was.Device
}

// LacksRoot reports whether the instance has an empty root slot. A disk that is no volume fills
// the slot too.
func (i *Instance) LacksRoot() bool {
	root := i.RootSlot()
	return root != nil && root.VolumeID == nil && root.Note == ""
}
