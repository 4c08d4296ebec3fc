// SPDX-License-Identifier: Apache-2.0

package location

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// placeOf returns the place of an identity.
func placeOf(id Identity) Place {
	return Place{id: id, madeOf: func() (parts, error) { return madeOf(id) }}
}

func TestADeviceOverlapsWhatItIsMadeOf(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "image")
	check(t, os.WriteFile(file, nil, 0o600))
	image, err := Identify(file)
	check(t, err)
	sysfs(t, map[string]string{
		"8:0": "sda", "8:1": "sda/sda1", "8:2": "sda/sda2", "8:16": "sdb", "8:17": "sdb/sdb1", "8:32": "sdc", "8:33": "sdc/sdc1",
		"253:0": "dm-0", "253:1": "dm-1", "253:2": "dm-2", "253:3": "dm-3", "7:0": "loop0", "7:1": "loop1", "7:2": "loop2", "7:3": "loop3",
	}, map[string]string{
		"sda/dev": "8:0", "sda/device/wwid": "naa.6001", "sda/sda1/dev": "8:1", "sda/sda1/partition": "1", "sda/sda1/start": "2048",
		"sda/sda2/dev": "8:2", "sda/sda2/partition": "2", "sda/sda2/start": "4096",
		// The same LUN on another path, and a disk without an identity.
		"sdb/dev": "8:16", "sdb/device/wwid": "naa.6001", "sdb/sdb1/dev": "8:17", "sdb/sdb1/partition": "1", "sdb/sdb1/start": "2048",
		"sdc/dev": "8:32", "sdc/sdc1/dev": "8:33", "sdc/sdc1/partition": "1", "sdc/sdc1/start": "2048",
		// Two LVM volumes on sdc1, one over the first, and one on the file of a loop device.
		"dm-0/slaves/sdc1/dev": "8:33", "dm-1/slaves/sdc1/dev": "8:33", "dm-2/slaves/dm-0/dev": "253:0", "dm-3/slaves/loop0/dev": "7:0",
		"loop0/loop/backing_file": file, "loop0/loop/offset": "0", "loop1/loop/backing_file": file, "loop1/loop/offset": "0",
		"loop2/loop/backing_file": file, "loop2/loop/offset": "4096", "loop3/loop/backing_file": file + " (deleted)",
	})
	number := func(major, minor uint32) Identity { return Identity{Block: true, Dev: unix.Mkdev(major, minor)} }
	for _, c := range []struct {
		a, b Identity
		want bool
		why  string
	}{
		{number(8, 0), number(8, 1), true, "a partition is of its disk"},
		{number(8, 1), number(8, 2), false, "two partitions are apart"},
		{number(8, 0), number(8, 16), true, "a LUN is the same by both of its paths"},
		{number(8, 1), number(8, 16), true, "a partition is of its disk by another path"},
		{number(8, 1), number(8, 17), true, "a partition is the same by both paths of its disk"},
		{number(8, 2), number(8, 17), false, "another partition is not"},
		{number(8, 0), number(8, 32), false, "two disks are apart"},
		{number(8, 1), number(8, 33), false, "partitions of two disks are apart"},
		{number(253, 0), number(8, 33), true, "a map is of its device"},
		{number(253, 0), number(8, 32), true, "a map is of the disk of its partition"},
		{number(253, 0), number(253, 1), false, "two volumes of a group are apart"},
		{number(253, 2), number(253, 0), true, "a map is of the map below it"},
		{number(253, 2), number(8, 32), true, "a map is of the disk below the map below it"},
		{image, number(7, 0), true, "a loop device is of its file"},
		{image, number(253, 3), true, "a map is of the file of its loop device"},
		{image, number(7, 3), false, "a file that was deleted is nobody's"},
		{number(7, 0), number(7, 1), true, "two loop devices show the same of one file"},
		{number(7, 0), number(7, 2), false, "two loop devices that begin elsewhere in one file need not"},
		{number(9, 9), number(8, 0), false, "a device that is gone is of nothing"},
	} {
		for _, way := range [][2]Identity{{c.a, c.b}, {c.b, c.a}} {
			got, err := overlap(placeOf(way[0]), placeOf(way[1]))
			check(t, err)
			if got != c.want {
				t.Errorf("%s: %v and %v overlap is %v", c.why, way[0], way[1], got)
			}
		}
	}
}

func TestADeviceMadeOfWhatHasNoNumberIsUnknown(t *testing.T) {
	sysfs(t, map[string]string{"253:0": "dm-0", "8:0": "sda"}, map[string]string{"dm-0/slaves/sda/dev": "gone"})
	number := func(major, minor uint32) Place { return placeOf(Identity{Block: true, Dev: unix.Mkdev(major, minor)}) }
	if _, err := overlap(number(253, 0), number(8, 0)); err == nil {
		t.Error("a map whose device is unknown overlaps nothing")
	}
}
