// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// TestAVolumeOfAnUnevenSizeIsOpenedByQEMUWhereItWent. It begins with a hole, of which QEMU
// cannot tell how the file may be read past the page cache: it opens no such file whose size
// is no multiple of 4096.
func TestAVolumeOfAnUnevenSizeIsOpenedByQEMUWhereItWent(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	h.fsPool(t, "small-blocks", "ext4", 200)
	h.fsPool(t, "large-blocks", "btrfs", 300)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	path := filepath.Join(a, "uneven.raw")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("data, behind a hole"), 4<<20); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(8<<20 + 512); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sumOf(t, path)
	v := h.adoptVolume(t, lab.Disk{Volume: lab.Volume{Path: path, Format: "raw"}})

	e := h.refuses(t, api.CodeSizeMismatch, "volume", "migrate", v.name, "--to-pool", "large-blocks")
	mustContain(t, e.Message, "4096", "volume resize "+v.name+" --size 8392704")
	h.ctl(t, "volume", "migrate", v.name, "--to-pool", "small-blocks")
	if got := sumOf(t, v.show(t).Location.Path); got != sum {
		t.Errorf("the volume was %s and is %s", sum, got)
	}
	h.ctl(t, "volume", "attach", v.name, g.Name, "--device", "vdf")
	h.ctl(t, "volume", "detach", v.name, g.Name)
	h.ctl(t, "volume", "resize", v.name, "--size", "8392704")
	h.ctl(t, "volume", "migrate", v.name, "--to-pool", "large-blocks")
	h.ctl(t, "volume", "attach", v.name, g.Name, "--device", "vdf")
	h.ctl(t, "volume", "detach", v.name, g.Name)
	h.ctl(t, "volume", "migrate", v.name, "--to-pool", "b")

	h.ctl(t, "volume", "create", "made", "--size", "8389120", "--pool", "small-blocks") // 8 MiB and 512 bytes
	h.ctl(t, "volume", "attach", "made", g.Name, "--device", "vdf")
	h.ctl(t, "volume", "detach", "made", g.Name)
	h.ctl(t, "volume", "delete", "made")
	g.assertSettled(t)
}
