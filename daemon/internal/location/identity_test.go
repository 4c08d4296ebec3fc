// SPDX-License-Identifier: Apache-2.0

package location

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// silent makes everything below dir a filesystem that does not answer, until the test ends.
func silent(t *testing.T, dir string) {
	t.Helper()
	call := stats.call
	t.Cleanup(func() { stats.call = call })
	stats.call = func(path string, into *unix.Stat_t) error {
		if strings.HasPrefix(path, dir+"/") {
			return ErrNoAnswer
		}
		return call(path, into)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneImageIsOneImageWhateverItIsCalled(t *testing.T) {
	dir := t.TempDir()
	images, other := filepath.Join(dir, "images"), filepath.Join(dir, "other")
	check(t, os.Mkdir(images, 0o700))
	check(t, os.Mkdir(other, 0o700))
	check(t, os.Symlink(images, filepath.Join(dir, "alias")))
	for _, path := range []string{images + "/a", other + "/a"} {
		check(t, os.WriteFile(path, nil, 0o600))
	}
	check(t, os.Link(images+"/a", other+"/hard"))
	check(t, os.Symlink("../images/a", other+"/soft"))
	check(t, os.Symlink("../images/none", other+"/dangling"))
	check(t, os.Symlink("loop", other+"/loop"))
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"images/a", "images/a", true},
		{"images/a", "other/hard", true},
		{"images/a", "other/soft", true},
		{"images/a", "alias/a", true},
		{"other/hard", "alias/a", true},
		{"images/a", "other/a", false},
		{"images/a", "images/none", false},
		{"images/none", "images/none", true},
		{"images/none", "alias/none", true},
		{"images/none", "other/dangling", true},
		{"images/none", "other/none", false},
		{"images/none", "images/none2", false},
		{"nowhere/none", "elsewhere/none", false},
		{"images/a", "other/loop", false},
	} {
		for _, p := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			got, err := SameImage(filepath.Join(dir, p[0]), filepath.Join(dir, p[1]))
			if err != nil || got != c.want {
				t.Errorf("SameImage(%s, %s) = %t, %v, want %t", p[0], p[1], got, err, c.want)
			}
		}
	}
}

func TestABlockDeviceIsOneByItsNumber(t *testing.T) {
	dir := t.TempDir()
	for name, minor := range map[string]uint32{"a": 250, "b": 250, "c": 251} {
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFBLK|0o600, int(unix.Mkdev(7, minor))); err != nil {
			t.Skipf("device nodes cannot be made here: %v", err)
		}
	}
	for name, want := range map[string]bool{"b": true, "c": false} {
		if got, err := SameImage(dir+"/a", dir+"/"+name); err != nil || got != want {
			t.Errorf("a and %s: %t, %v, want %t", name, got, err, want)
		}
	}
}

func TestABindMountIsTheSameDirectory(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Mkdir(dir+"/a", 0o700))
	check(t, os.Mkdir(dir+"/b", 0o700))
	if err := unix.Mount(dir+"/a", dir+"/b", "", unix.MS_BIND, ""); err != nil {
		t.Skipf("bind mounts cannot be made here: %v", err)
	}
	defer func() { check(t, unix.Unmount(dir+"/b", unix.MNT_DETACH)) }()
	check(t, os.WriteFile(dir+"/a/x", nil, 0o600))
	for _, name := range []string{"x", "none"} {
		if got, err := SameImage(dir+"/a/"+name, dir+"/b/"+name); err != nil || !got {
			t.Errorf("%s: %t, %v, want the same", name, got, err)
		}
	}
}

// TestWhatCannotBeLookedAtIsNotTakenForAnotherImage: a missing answer must never let a volume be
// overwritten.
func TestWhatCannotBeLookedAtIsNotTakenForAnotherImage(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(dir+"/a", nil, 0o600))
	silent(t, dir+"/away")
	disk := hv.Disk{Target: "vda", Chain: []hv.Image{{Path: dir + "/away/x"}}}
	doms := []hv.Domain{{Name: "web", Config: []hv.Disk{disk}}}
	for _, path := range []string{dir + "/a", dir + "/away/y"} {
		if _, err := SameImage(path, dir+"/away/x"); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("%s: got %v, want ErrNoAnswer", path, err)
		}
		if _, _, err := DiskOf(doms, path); !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "disk vda of instance web") {
			t.Errorf("DiskOf(%s): got %v, want ErrNoAnswer of disk vda of web", path, err)
		}
	}
	if same, err := SameImage(dir+"/away/x", dir+"/away/x"); err != nil || !same {
		t.Errorf("one path: %t, %v, want the same without a look", same, err)
	}
	// An image with the same text in its path is found in any case.
	doms = append(doms, hv.Domain{Name: "db", Config: []hv.Disk{{Target: "vdb", Chain: []hv.Image{{Path: dir + "/a"}}}}})
	if domain, target, err := DiskOf(doms, dir+"/a"); domain+target != "dbvdb" || err != nil {
		t.Errorf("DiskOf found %s %s, %v", domain, target, err)
	}
}

// TestAServerThatIsAwayDoesNotStopWhatIsElsewhere: the kernel knows the filesystem of a path
// without its server.
func TestAServerThatIsAwayDoesNotStopWhatIsElsewhere(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(dir+"/a", nil, 0o600))
	a, err := Identify(dir + "/a")
	check(t, err)
	silent(t, dir+"/away")
	table := func(kind string, dev uint64) {
		t.Helper()
		text := fmt.Sprintf("21 1 0:5 / / rw - ext4 /dev/vda rw\n99 21 %d:%d / %s/away rw,relatime shared:1 - %s server:/export rw\n", unix.Major(dev), unix.Minor(dev), dir, kind)
		check(t, os.WriteFile(dir+"/mountinfo", []byte(text), 0o600))
	}
	was := mountInfo
	mountInfo = dir + "/mountinfo"
	t.Cleanup(func() { mountInfo = was })
	for _, c := range []struct {
		kind  string
		dev   uint64
		known bool
	}{
		{"nfs4", unix.Mkdev(0, 77), true},
		{"nfs4", a.Dev, false}, // the image is on that server too
		{"ext4", unix.Mkdev(0, 77), false},
	} {
		table(c.kind, c.dev)
		same, err := SameImage(dir+"/a", dir+"/away/x")
		if same || (err == nil) != c.known {
			t.Errorf("%s of device %d: %t, %v, want known %t", c.kind, c.dev, same, err, c.known)
		}
	}
}

func TestMountOfFindsTheDeepestMount(t *testing.T) {
	const table = `21 1 0:5 / / rw - ext4 /dev/vda rw
30 21 0:44 / /mnt rw shared:1 master:2 - nfs4 s:/a rw
31 30 0:45 / /mnt/with\040blank rw - nfs s:/b rw
`
	for path, want := range map[string]string{
		"/mnt": "/mnt", "/mnt/x": "/mnt", "/mntx": "/", "/mnt/with blank/x": "/mnt/with blank", "/x": "/",
	} {
		if got, ok := mountOf(table, path); !ok || got.point != want {
			t.Errorf("%s is on %q, want %q", path, got.point, want)
		}
	}
}

// TestABackingImageThatOnlyAHeaderNamesIsFound: the definition of a domain that is off names the
// top of a chain.
func TestABackingImageThatOnlyAHeaderNamesIsFound(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"base.raw", "json.raw", "other.raw"} {
		check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	check(t, os.Link(dir+"/base.raw", dir+"/alias.raw"))
	check(t, os.WriteFile(dir+"/top.qcow2", qcow2Over("middle.qcow2", ""), 0o600))
	check(t, os.WriteFile(dir+"/middle.qcow2", qcow2Over(dir+"/base.raw", "raw"), 0o600))
	check(t, os.WriteFile(dir+"/json.qcow2", qcow2Over(`json:{"driver":"raw","file":{"driver":"file","filename":"`+dir+`/json.raw"}}`, "raw"), 0o600))
	disk := func(name, format string, terminated bool) hv.Disk {
		return hv.Disk{Target: "vda", Terminated: terminated, Chain: []hv.Image{{Path: filepath.Join(dir, name), Format: format}}}
	}
	for _, c := range []struct {
		disk hv.Disk
		path string
		want bool
	}{
		{disk("top.qcow2", "qcow2", false), "alias.raw", true},
		{disk("top.qcow2", "qcow2", false), "middle.qcow2", true},
		{disk("top.qcow2", "qcow2", false), "other.raw", false},
		{disk("json.qcow2", "qcow2", false), "json.raw", true},
		// libvirt reads no header if the definition states the end of the chain, and a guest may
		// write anything into a raw image.
		{disk("top.qcow2", "qcow2", true), "alias.raw", false},
		{disk("top.qcow2", "raw", false), "alias.raw", false},
		{disk("gone.qcow2", "qcow2", false), "alias.raw", false},
	} {
		got, err := Names(&c.disk, filepath.Join(dir, c.path))
		if err != nil || got != c.want {
			t.Errorf("%s (terminated %t) names %s: %t, %v, want %t", c.disk.Top().Path, c.disk.Terminated, c.path, got, err, c.want)
		}
	}
}

// qcow2Over returns the header of a qcow2 image over another one.
func qcow2Over(backing, format string) []byte {
	h := make([]byte, 512)
	be := binary.BigEndian
	be.PutUint32(h, 0x514649fb)
	be.PutUint32(h[4:], 3)
	be.PutUint64(h[8:], 256)
	be.PutUint32(h[16:], uint32(len(backing)))
	be.PutUint32(h[20:], 16)
	be.PutUint32(h[100:], 104)
	if format != "" {
		be.PutUint32(h[104:], 0xe2792aca)
		be.PutUint32(h[108:], uint32(len(format)))
		copy(h[112:], format)
	}
	copy(h[256:], backing)
	return h
}
