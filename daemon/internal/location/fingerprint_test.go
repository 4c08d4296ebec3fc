// SPDX-License-Identifier: Apache-2.0

package location

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// sysfs makes a /sys of these files, with a link by number to each device.
func sysfs(t *testing.T, links, files map[string]string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, "devices", name)
		check(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
	}
	check(t, os.MkdirAll(filepath.Join(root, "dev/block"), 0o700))
	for number, to := range links {
		check(t, os.MkdirAll(filepath.Join(root, "devices", to), 0o700))
		check(t, os.Symlink(filepath.Join("../../devices", to), filepath.Join(root, "dev/block", number)))
	}
	before := sysDevBlock
	sysDevBlock = filepath.Join(root, "dev/block")
	t.Cleanup(func() { sysDevBlock = before })
}

func TestADeviceIsWhatItSaysOfItselfAndNotItsNumber(t *testing.T) {
	sysfs(t, map[string]string{
		"253:0": "dm-0", "259:0": "nvme0n1", "8:0": "sda", "8:1": "sda/sda1", "8:2": "sda/sda2", "252:0": "vda", "252:16": "vdb", "252:17": "vdb/vdb1",
		"7:0": "loop0", "7:1": "loop1", "8:16": "sdb",
	}, map[string]string{
		"dm-0/dm/uuid": "LVM-abcdef", "dm-0/dm/name": "vg-lv",
		"nvme0n1/wwid":    "uuid.0f0e0d0c-0b0a-0908-0706-050403020100",
		"sda/device/wwid": "naa.600140500000000000000000000000aa", "sda/sda1/partition": "1", "sda/sda1/start": "2048",
		"sda/sda1/uevent": "MAJOR=8\nMINOR=1\nDEVTYPE=partition\nPARTN=1\nPARTUUID=11111111-01", "sda/sda2/partition": "2", "sda/sda2/start": "4096",
		"vda/serial": "disk-7", "vdb/serial": "", "vdb/vdb1/partition": "1",
		"loop0/loop/backing_file": "/srv/a.img (deleted)", "loop0/loop/offset": "0", "loop0/loop/sizelimit": "0",
		"loop1/loop/backing_file": "/nonexistent/b.img", "loop1/loop/offset": "4096", "loop1/loop/sizelimit": "1048576",
		"sdb/device/vendor": "a disk that says nothing",
	})
	for _, c := range []struct {
		major, minor uint32
		want         string
	}{
		{253, 0, "device LVM-abcdef"},
		{259, 0, "device uuid.0f0e0d0c-0b0a-0908-0706-050403020100"},
		{8, 0, "device naa.600140500000000000000000000000aa"},
		{8, 1, "device partition 1 at sector 2048 uuid 11111111-01 of naa.600140500000000000000000000000aa"},
		{8, 2, "device partition 2 at sector 4096 of naa.600140500000000000000000000000aa"},
		{252, 0, "device disk-7"},
		{252, 17, "device 252:17"},
		{7, 0, "device loop /srv/a.img (deleted)"},
		{7, 1, "device loop /nonexistent/b.img offset 4096 sizelimit 1048576"},
		{8, 16, "device 8:16"},
		{8, 32, "device 8:32"},
	} {
		if got := device(c.major, c.minor); got != c.want {
			t.Errorf("%d:%d is %q, want %q", c.major, c.minor, got, c.want)
		}
	}
}

// TestALoopDeviceWithAnotherFileIsAnother, even if that file is at the path of the first.
func TestALoopDeviceWithAnotherFileIsAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for loop devices")
	}
	dir := t.TempDir()
	ours, other := filepath.Join(dir, "ours"), filepath.Join(dir, "other")
	for _, path := range []string{ours, other} {
		check(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	}
	const node = "/dev/loop913" // programs that look for a free device get a lower one
	attached := func(file string) string {
		t.Helper()
		losetup(t, node, file)
		fingerprint, err := Fingerprint(node)
		check(t, err)
		losetup(t, "--detach", node)
		return fingerprint
	}
	first := attached(ours)
	if !strings.Contains(first, ours) || attached(ours) != first {
		t.Errorf("the same file again: %q, want %q", attached(ours), first)
	}
	if now := attached(other); SameImagePrint(first, now) {
		t.Errorf("another file has the fingerprint %q of the first", now)
	}
	check(t, os.Rename(other, ours))
	if now := attached(ours); SameImagePrint(first, now) {
		t.Errorf("another file at the path of the first has its fingerprint %q", now)
	}
}

// TestAPartitionAtAnotherSectorIsAnother, whatever its number is, and the same if it has grown.
func TestAPartitionAtAnotherSectorIsAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for loop devices")
	}
	file := filepath.Join(t.TempDir(), "disk")
	check(t, os.WriteFile(file, make([]byte, 4<<20), 0o600))
	const node = "/dev/loop914" // as above
	losetup(t, node, file)
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", node).Run() }) //nolint:noctx // the test has ended
	disk, err := os.Open(node)
	check(t, err)
	defer disk.Close()
	check(t, unix.Flock(int(disk.Fd()), unix.LOCK_EX)) // otherwise udev opens each partition
	at := func(start, sectors string) string {
		t.Helper()
		tool(t, "addpart", node, "1", start, sectors)
		fingerprint, err := Fingerprint(node + "p1")
		tool(t, "delpart", node, "1")
		check(t, err)
		return fingerprint
	}
	first := at("63", "2001")
	if want := "device partition 1 at sector 63 of loop " + file + " "; !strings.HasPrefix(first, want) {
		t.Errorf("it is %q, want %q", first, want)
	}
	if grown := at("63", "4000"); grown != first {
		t.Errorf("once it has grown it is %q, and was %q", grown, first)
	}
	if now := at("64", "2001"); SameImagePrint(first, now) {
		t.Errorf("another one has the fingerprint %q of the first", now)
	}
}

func losetup(t *testing.T, args ...string) {
	t.Helper()
	tool(t, "losetup", args...)
}

func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func TestADeviceIsKnownByItsIdentityAndWithoutOneByItsNumber(t *testing.T) {
	for _, c := range []struct {
		earlier, now string
		want         bool
	}{
		{"device naa.1", "device naa.1", true},
		{"device naa.1", "device naa.2", false},
		{"device naa.1", "device 8:0", false},
		{"device 8:0", "device 8:16", false},
		{"device 8:0", "device 8:0", true},
		{"device 7:0", "device loop /a inode 5", false},
		{"device 7:0", "inode 5", false},
		{"inode 5", "device naa.1", false},
		{"device naa.1", "", false},
	} {
		if got := SameImagePrint(c.earlier, c.now); got != c.want {
			t.Errorf("%q and then %q: %t, want %t", c.earlier, c.now, got, c.want)
		}
	}
}

func TestAnIdentityIsWhatADeviceSaysAndAFileHasNone(t *testing.T) {
	for fingerprint, want := range map[string]string{
		"device LVM-abcdef": "LVM-abcdef", "device 8:16": "", "inode 7 of 1.000000002": "", "device loop /srv/\x1b[2J.img": "",
	} {
		if got := IdentityIn(fingerprint); got != want {
			t.Errorf("%q has the identity %q, want %q", fingerprint, got, want)
		}
	}
}

// Of two hosts with the same LUNs one may have multipath.
func TestALUNIsTheSameWithMultipathAndWithout(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"naa.6001405aa", "mpath-36001405aa", true},
		{"mpath-36001405aa", "naa.6001405aa", true},
		{"eui.0025385aa", "mpath-20025385aa", true},
		{"uuid.0f0e0d0c-0b0a", "mpath-uuid.0f0e0d0c-0b0a", true},
		{"LVM-abcdef", "LVM-abcdef", true},
		{"naa.6001405aa", "mpath-36001405bb", false},
		{"naa.6001405aa", "naa.6001405bb", false},
		{"LVM-abcdef", "", false},
		{"mpath-", "naa.", false},
	} {
		if got := SameIdentity(c.a, c.b); got != c.same {
			t.Errorf("%q and %q: %v, want %v", c.a, c.b, got, c.same)
		}
	}
}

// Two hosts, or one host over time, may differ in multipath or in the kernel version.
func TestAPartitionIsTheSameWhateverMoreTheKernelSaysOfIt(t *testing.T) {
	const (
		old  = "partition 1 at sector 2048 of naa.6001405aa"
		now  = "partition 1 at sector 2048 uuid 11111111-01 of naa.6001405aa"
		maps = "part1-mpath-36001405aa"
	)
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{old, now, true},
		{now, old, true},
		{old, maps, true},
		{maps, now, true},
		{"partition 1 at sector 2048 of mpath-36001405aa", old, true},
		{now, "partition 1 at sector 2048 uuid 22222222-01 of naa.6001405aa", false},
		{old, "partition 1 at sector 4096 uuid 11111111-01 of naa.6001405aa", false},
		{old, "partition 2 at sector 2048 of naa.6001405aa", false},
		{old, "partition 1 at sector 2048 of naa.6001405bb", false},
		{maps, "part2-mpath-36001405aa", false},
		{maps, "part1-mpath-36001405bb", false},
		{maps, "mpath-36001405aa", false},
		{old, "naa.6001405aa", false},
		{old, "", false},
	} {
		if got := SameIdentity(c.a, c.b); got != c.same {
			t.Errorf("%q and %q: %v, want %v", c.a, c.b, got, c.same)
		}
	}
}

func TestWhatAHostSaysOfADeviceInOtherWordsIsTheSameImage(t *testing.T) {
	for _, c := range []struct {
		earlier, now string
		same         bool
	}{
		{"device naa.6001405aa", "device mpath-36001405aa", true},
		{"device 8:16", "device naa.6001405aa", false},
		{"device naa.6001405aa", "device naa.6001405bb", false},
		{"device naa.6001405aa", "device 8:16", false},
		{"inode 7 of 1.0", "inode 8 of 1.0", false},
		{"inode 7 of 1.0", "device naa.6001405aa", false},
	} {
		if got := SameImagePrint(c.earlier, c.now); got != c.same {
			t.Errorf("%q and %q: %v, want %v", c.earlier, c.now, got, c.same)
		}
	}
}
