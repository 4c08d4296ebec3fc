// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/test/lab"
)

// quarter is the beginning of a volume that has nothing behind it.
const quarter = volumeBytes / 4

// diskOfAQuarter makes a volume that is full in its first quarter, to which its guest keeps, and
// has nothing but zeros behind it.
func (h *host) diskOfAQuarter(t *testing.T) lab.Disk {
	t.Helper()
	n := h.number()
	d := lab.Disk{
		Volume: lab.Volume{Path: filepath.Join(h.poolA, fmt.Sprintf("quarter-%d.raw", n)), Format: "raw"},
		Serial: fmt.Sprintf("serial-%d", n), Seed: uint64(n), Fill: lab.Fill{Seed: uint64(n), Percent: 100}, Parts: volumeBytes / quarter,
	}
	if err := lab.MakeVolume(t.Context(), d.Volume, quarter, d.Fill); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.Path, volumeBytes); err != nil {
		t.Fatal(err)
	}
	return d
}

// Each thin volume is full of another one's bytes before. What the guest writes meanwhile is in the
// quarter.
func TestStorageAVolumeOfARunningGuestIsAsThinWhereItWent(t *testing.T) {
	h := storageHost(t)
	d := h.diskOfAQuarter(t)
	zeros := sumBetween(t, d.Path, quarter/sectorBytes, volumeSectors)
	g := h.runningGuest(t, d)
	for _, kind := range []string{"THIN", "THIN2"} {
		device := storageDevice(t, kind)
		if err := writeRandom(device, volumeBytes); err != nil {
			t.Fatal(err)
		}
		if bytes := thinBytes(t, device); bytes < volumeBytes {
			t.Fatalf("a thin volume that is full takes %d bytes", bytes)
		}
		g.migrate(t, "vda", "--to-path", device)
		const rounded = volumeBytes / 100 // as LVM says it
		if bytes := thinBytes(t, device); bytes > quarter+rounded {
			t.Errorf("a volume with %d bytes of data takes %d of the thin pool at %s", quarter, bytes, kind)
		}
		tool(t, "blockdev", "--flushbufs", device)
		if sumBetween(t, device, quarter/sectorBytes, volumeSectors) != zeros {
			t.Errorf("what was zeros is none at %s", kind)
		}
		g.writes(t)
	}
	g.assertSettled(t)
}
