// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func stampOf(t *testing.T, path string) Stamp {
	t.Helper()
	s, err := Storage{}.Stamp(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Only an open makes NFS ask the server, which knows the writes of other hosts.
func TestAFileOnNFSIsOpenedForItsStamp(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "img")
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(watch) }()
	if _, err := unix.InotifyAddWatch(watch, path, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	var on unix.Statfs_t
	if err := unix.Statfs(dir, &on); err != nil {
		t.Fatal(err)
	}
	for _, nfs := range []bool{false, true} {
		if nfs {
			was := nfsMagic
			nfsMagic = on.Type
			defer func() { nfsMagic = was }()
		}
		stampOf(t, path)
		n, err := unix.Read(watch, make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1))
		if opened := err == nil && n > 0; opened != nfs {
			t.Errorf("on NFS %t: it was opened: %t (%v)", nfs, opened, err)
		}
	}
}

func TestAStampTellsAFileThatWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	before := stampOf(t, path)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if stampOf(t, path).WrittenSince(before) {
		t.Error("a file that was read, and got another mode, counts as written")
	}
	if err := os.WriteFile(path, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !stampOf(t, path).WrittenSince(before) {
		t.Error("a file that was written does not count as such")
	}
}

func TestAStampOfADeviceCountsWritesAndDiscardsOfOneBoot(t *testing.T) {
	sysBlock = t.TempDir()
	t.Cleanup(func() { sysBlock = "/sys/dev/block" })
	state := func(boot, counters string) Stamp {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(sysBlock, "253:7"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sysBlock, "253:7", "stat"), []byte(counters+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		const dev253n7 = 253<<8 | 7
		sectors, err := sectorsChanged(dev253n7)
		if err != nil {
			t.Fatal(err)
		}
		return Stamp{Device: true, Sectors: sectors, Boot: boot}
	}
	was := state("a", "10 0 80 1 5 0 40 1 0 2 2 3 0 24 0 7 1")
	for _, c := range []struct {
		name, boot, counters string
		want                 bool
	}{
		{"read", "a", "99 0 800 1 5 0 40 1 0 2 2 3 0 24 0 7 1", false},
		{"written", "a", "10 0 80 1 6 0 48 1 0 2 2 3 0 24 0 7 1", true},
		{"discarded", "a", "10 0 80 1 5 0 40 1 0 2 2 4 0 32 0 7 1", true},
		// as Linux 6.18 counts it
		{"flushed", "a", "10 0 80 1 6 0 40 1 0 2 2 3 0 24 0 8 1", false},
		{"after a reboot", "b", "10 0 80 1 6 0 48 1 0 2 2 3 0 24 0 7 1", false},
	} {
		if got := state(c.boot, c.counters).WrittenSince(was); got != c.want {
			t.Errorf("%s: written is %t, want %t", c.name, got, c.want)
		}
	}
}

func TestThereIsNoStampOfWhatIsNotThere(t *testing.T) {
	if _, err := (Storage{}).Stamp(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrAbsent) {
		t.Errorf("%v, want ErrAbsent", err)
	}
}

// Not known to be written is not the same as known to be unwritten.
func TestAStampThatCannotTellSaysSoAndWhy(t *testing.T) {
	device := Stamp{Device: true, Sectors: 8, Boot: "a"}
	for name, c := range map[string]struct {
		now     Stamp
		earlier *Stamp
		want    Change
	}{
		"no earlier stamp":                  {Stamp{SizeBytes: 1, ModifiedNS: 2, Boot: "a"}, nil, ChangeUnknown},
		"a file as it was, after a reboot":  {Stamp{SizeBytes: 1, ModifiedNS: 2, Boot: "b"}, &Stamp{SizeBytes: 1, ModifiedNS: 2, Boot: "a"}, Unchanged},
		"a file with an older time":         {Stamp{SizeBytes: 1, ModifiedNS: 1}, &Stamp{SizeBytes: 1, ModifiedNS: 2}, Changed},
		"an export":                         {Stamp{SizeBytes: 1}, &Stamp{SizeBytes: 1}, ChangeUnknown},
		"a device as it was":                {device, &device, Unchanged},
		"a device with more sectors":        {Stamp{Device: true, Sectors: 16, Boot: "a"}, &device, Changed},
		"a device after a reboot":           {Stamp{Device: true, Sectors: 8, Boot: "b"}, &device, ChangeUnknown},
		"a device that was connected again": {Stamp{Device: true, Sectors: 0, Boot: "a"}, &device, ChangeUnknown},
	} {
		got, why := c.now.ChangeSince(c.earlier)
		if got != c.want || (why != "") != (c.want == ChangeUnknown) {
			t.Errorf("%s: %d %q, want %d", name, got, why, c.want)
		}
	}
}
