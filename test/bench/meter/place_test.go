// SPDX-License-Identifier: Apache-2.0

package meter

import "testing"

func TestAMountIsFoundByItsNumber(t *testing.T) {
	const mountinfo = `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
7 27 0:44 / /mnt/a\040b rw shared:1 master:2 - btrfs /dev/loop3 rw,subvol=/
72 27 0:45 / /tmp rw - tmpfs tmpfs rw
`
	for id, want := range map[uint64][2]string{27: {"/dev/vda", "ext4"}, 7: {"/dev/loop3", "btrfs"}, 72: {"tmpfs", "tmpfs"}, 2: {}} {
		if source, fsType := mounted(mountinfo, id); source != want[0] || fsType != want[1] {
			t.Errorf("mount %d is of %s from %q, want %v", id, fsType, source, want)
		}
	}
}

func TestTheDirectoryOfTheTestIsInAFileSystem(t *testing.T) {
	if p, err := placeOf(t.TempDir()); err != nil || p.fsType == "" {
		t.Errorf("the place is %+v: %v", p, err)
	}
}
