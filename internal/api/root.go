// SPDX-License-Identifier: Apache-2.0

package api

import "slices"

// IsRoot reports whether bootIndex is the boot index of a root slot.
func IsRoot(bootIndex *int) bool { return bootIndex != nil && *bootIndex == 0 }

// RootSlot returns the slot that the instance boots from, nil if it has none. It has at
// most one.
func (i *Instance) RootSlot() *BlockDeviceMapping {
	at := slices.IndexFunc(i.BlockDeviceMappings, func(b BlockDeviceMapping) bool { return IsRoot(b.BootIndex) })
	if at < 0 {
		return nil
	}
	return &i.BlockDeviceMappings[at]
}

// WasRoot reports whether the instance booted from the disk before that was detached. The boot
// order belongs to the root slot and does not come back with the volume.
func (i *Instance) WasRoot(was *DetachedDisk) bool {
	root := i.RootSlot()
	return root != nil && root.Device == was.Device
}

// LacksRoot reports whether the instance has a root slot and no disk in it. A disk that is no
// volume counts as a root too.
func (i *Instance) LacksRoot() bool {
	root := i.RootSlot()
	return root != nil && root.VolumeID == nil && root.Note == ""
}
