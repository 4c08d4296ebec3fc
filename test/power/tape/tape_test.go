// SPDX-License-Identifier: Apache-2.0

package tape_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/power/tape"
)

func TestMain(m *testing.M) {
	tape.Serve()
	os.Exit(m.Run())
}

func TestOfTheCutsOfADiskThoseBehindAnFsyncHaveTheFile(t *testing.T) {
	lab.Require(t)
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) { fsyncedFileIsThere(t, fs) })
	}
}

// fsyncedFileIsThere writes a file to a disk, syncs it, and writes one that it does not sync.
func fsyncedFileIsThere(t *testing.T, fs string) {
	dir := lab.TempDir(t)
	disks, err := tape.Start(t.Context(), tape.Config{Dir: dir, Disks: []tape.DiskConfig{{Name: "a", FS: fs, SizeMiB: 320}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disks.Close(); err != nil {
			t.Error(err)
		}
	})
	at := filepath.Join(dir, "a")
	must(t, disks.Mount("a", at))
	must(t, disks.Record())
	f, err := os.Create(filepath.Join(at, "synced"))
	must(t, err)
	_, err = f.WriteString("synced")
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
	synced, err := disks.Stop()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(at, "not"), []byte("synced"), 0o600))
	must(t, disks.Unmount())

	there := map[tape.Loss]int{}
	for after := range len(synced) + 1 {
		for _, loss := range []tape.Loss{tape.Kept, tape.Lost, tape.Torn} {
			must(t, disks.CutAt(tape.Cut{After: after, Loss: []tape.Loss{loss}, Seed: uint64(after)}))
			must(t, disks.MountCut("a", at))
			text, err := os.ReadFile(filepath.Join(at, "synced"))
			if err == nil && string(text) == "synced" {
				there[loss]++
			} else if after == len(synced) && loss != tape.Torn {
				t.Errorf("%s, after all %d entries, and what was not flushed is %s: %q, %v", fs, after, loss, text, err)
			}
			if _, err := os.Stat(filepath.Join(at, "not")); err == nil {
				t.Errorf("after entry %d: a file that came later is there", after)
			}
			must(t, disks.Unmount())
		}
	}
	if there[tape.Lost] == 0 || there[tape.Lost] > len(synced)/2+1 {
		t.Errorf("the file is there after %d of %d cuts with loss: it has to come late", there[tape.Lost], len(synced)+1)
	}
	t.Logf("%s: %d entries, and the file is there after %v of the cuts", fs, len(synced), there)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
