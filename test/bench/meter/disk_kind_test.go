// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// described makes a directory as the kernel describes devices in: files by their content, and links
// by what they point to, behind "-> ".
func described(t *testing.T, files map[string]string) sysfs {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, link := strings.CutPrefix(content, "-> "); link {
			err = os.Symlink(to, path)
		} else {
			err = os.WriteFile(path, []byte(content+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return sysfs(root)
}

func TestTheKindOfADiskIsThatOfTheRealOneBelow(t *testing.T) {
	s := described(t, map[string]string{
		"dev/block/254:0":                  "-> ../../devices/virtio1/block/vda",
		"devices/virtio1/subsystem":        "-> ../../bus/virtio",
		"devices/virtio1/block/vda/device": "-> ../..", "devices/virtio1/block/vda/queue/rotational": "1",

		"dev/block/259:0":                     "-> ../../devices/nvme0/nvme0n1",
		"dev/block/259:2":                     "-> ../../devices/nvme0/nvme0n1/nvme0n1p2",
		"devices/nvme0/subsystem":             "-> ../../class/nvme",
		"devices/nvme0/model":                 "Quick 980   ",
		"devices/nvme0/nvme0n1/device":        "-> ..",
		"devices/nvme0/nvme0n1/nvme0n1p2/dev": "259:2", "devices/nvme0/nvme0n1/nvme0n1p2/partition": "2",
		"devices/nvme0/nvme0n1/queue/rotational": "0",

		"dev/block/253:1":                       "-> ../../devices/virtual/block/dm-1",
		"devices/virtual/block/dm-1/slaves/a":   "-> ../../../../nvme0/nvme0n1/nvme0n1p2",
		"devices/virtual/block/dm-1/queue/none": "",
	})
	for number, want := range map[string]string{
		"254:0": "vda (virtio, rotational=1)",
		"259:0": "nvme0n1 (nvme, Quick 980, rotational=0)",
		"259:2": "nvme0n1 (nvme, Quick 980, rotational=0)",
		"253:1": "dm-1 over nvme0n1 (nvme, Quick 980, rotational=0)",
		"7:7":   "",
	} {
		if got := s.kindOf(number); got != want {
			t.Errorf("device %s is %q, want %q", number, got, want)
		}
	}
}

func TestALoopDeviceIsOnTheDiskOfItsFile(t *testing.T) {
	dir := t.TempDir()
	p, err := placeOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := p.fsType // without a disk
	files := map[string]string{"dev/block/7:0": "-> ../../block/loop0", "block/loop0/loop/backing_file": filepath.Join(dir, "img")}
	if p.device != "" {
		files["dev/block/"+p.device], files["block/below/queue/rotational"] = "-> ../../block/below", "0"
		want = "below (rotational=0)"
	}
	if got := described(t, files).kindOf("7:0"); got != want {
		t.Errorf("the loop device is on %q, want %q", got, want)
	}
}
