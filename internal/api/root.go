// SPDX-License-Identifier: Apache-2.0

package api

import "slices"

// IsRoot says whether a boot_index is that of a root slot.
func IsRoot(bootIndex *int) bool { return bootIndex != nil && *bootIndex == 0 }

// RootSlot is the slot that the instance boots from, nil if it has none. It has one at
// most.
func (i *Instance) RootSlot() *BlockDeviceMapping {
	at := slices.IndexFunc(i.BlockDeviceMappings, func(b BlockDeviceMapping) bool { return IsRoot(b.BootIndex) })
	if at < 0 {
		return nil
	}
	return &i.BlockDeviceMappings[at]
}

// WasRoot says whether a volume was what the instance boots from when it was detached. Its
// place in the order of booting belongs to the root slot, and does not go with the volume.
func (i *Instance) WasRoot(was *DetachedDisk) bool {
	root := i.RootSlot()
	return root != nil && root.Device == was.Device
}

// LacksRoot says whether the root slot of the instance has lost its volume. A disk
// that is no volume is a root as well.
func (i *Instance) LacksRoot() bool {
	root := i.RootSlot()
	return root != nil && root.VolumeID == nil && root.Note == ""
}
