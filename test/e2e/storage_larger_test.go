// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// largerVolumeBytes is the size of the devices that are larger than a volume.
const largerVolumeBytes = volumeBytes + 4<<20

// largerOnes are their variables, but for the logical volume, to which other tests move.
var largerOnes = []string{"LARGER_THIN", "LARGER_MULTIPATH", "LARGER_NVME"}

func TestStorageAGuestWritesWhileItMovesToTheBeginningOfALargerDeviceOfEachKindAndBack(t *testing.T) {
	g := storageGuest(t)
	largerOnes := ofThisMachine(t, largerOnes)
	for _, kind := range largerOnes {
		device := storageDevice(t, kind)
		putEnd(t, device)
		isBeginningOf(t, g.migrate(t, "vda", "--to-path", device), device, largerVolumeBytes)
		t.Log("moved to", kind)
	}
	g.migrate(t, "vda", "--to-pool", "b")
	for _, kind := range largerOnes {
		endIsLeft(t, storageDevice(t, kind))
	}
	g.assertSettled(t)
}
