// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The sizes of what a volume is the beginning of: a LUN, or a logical volume that comes in
// extents, and a file, to which QEMU writes at a size like that.
const (
	largerDeviceBytes = volumeBytes + 4<<20 + 512
	largerFileBytes   = volumeBytes + 4<<20 + 4096
)

// end is what somebody else has behind the volume.
const end = "behind the volume"

// larger makes a file, and a block device, that are larger than the volumes and have
// somebody's bytes at the end.
func (h *host) larger(t *testing.T, dir string) (file, device string) {
	t.Helper()
	file = filepath.Join(dir, fmt.Sprintf("larger-%d.raw", h.number()))
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tool(t, "truncate", "--size", fmt.Sprint(int64(largerFileBytes)), file)
	device = h.device(t, dir, largerDeviceBytes).Path
	putEnd(t, file)
	putEnd(t, device)
	return file, device
}

// putEnd writes somebody's bytes behind the volume.
func putEnd(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(end), volumeBytes); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// endIsLeft claims that nothing was written behind the volume.
func endIsLeft(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(fileOf(path))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, len(end))
	if _, err := f.ReadAt(got, volumeBytes); err != nil || string(got) != end {
		t.Errorf("at the end of %s there is %q, %v", path, got, err)
	}
}

// isBeginningOf claims that a move went to the beginning of a larger image.
func isBeginningOf(t *testing.T, m api.Migration, path string, imageBytes int64) {
	t.Helper()
	if m.Dst.Path != path || m.Dst.SizeBytes != volumeBytes || m.Dst.ImageBytes != imageBytes {
		t.Errorf("the volume went to %+v", m.Dst)
	}
	endIsLeft(t, path)
}

func TestAGuestIsMovedToTheBeginningOfALargerImageAndOnFromThere(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	file, device := h.larger(t, b)
	isBeginningOf(t, g.migrate(t, "vda", "--to-path", device), device, largerDeviceBytes)
	isBeginningOf(t, g.migrate(t, "vda", "--to-path", file), file, largerFileBytes)
	v := g.start(t, "vda", "--to-path", device)
	v.copy(t)
	v.cancel(t)
	endIsLeft(t, file)
	g.assertSettledAndGoOn(t)
	g.migrate(t, "vda", "--to-path", device, "--method", "mirror")
	endIsLeft(t, device)
	g.migrate(t, "vda", "--to-pool", "a", "--to-format", "qcow2")
	endIsLeft(t, device)
	g.assertSettled(t)
}

func TestAStoppedGuestIsMovedToTheBeginningOfALargerImageAndGetsMoreOfIt(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	file, device := h.larger(t, b)
	isBeginningOf(t, g.migrate(t, "vda", "--to-path", device), device, largerDeviceBytes)
	g.assertSettled(t)
	isBeginningOf(t, g.migrate(t, "vda", "--to-path", file), file, largerFileBytes)
	g.boot(t)
	e := h.refuses(t, api.CodeUnsupportedDisk, "volume", "resize", g.volumeName("vda"), "--size", fmt.Sprint(volumeBytes+1<<20))
	mustContain(t, e.Message, "shut instance "+g.Name+" down")
	g.powerOff(t)
	h.refuses(t, api.CodeUnsupportedDisk, "volume", "resize", g.volumeName("vda"), "--size", fmt.Sprint(largerFileBytes+512))
	for _, size := range []int64{volumeBytes + 1<<20, largerFileBytes} {
		h.ctl(t, "volume", "resize", g.volumeName("vda"), "--size", fmt.Sprint(size))
		v := g.volume(t, "vda")
		if v.SizeBytes != size || v.Location.IsSlice() != (size < largerFileBytes) {
			t.Errorf("the volume is %+v", v.Location)
		}
	}
}
