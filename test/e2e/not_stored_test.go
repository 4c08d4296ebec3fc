// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/fulldisk"
	"github.com/volferry/volferry/test/lab"
)

// crowdedDevice is a block device whose bytes are in a file with holes, as those of a thin volume.
// Fill makes a hole of each zero in it, and leaves no room in its filesystem until the returned
// function is called. A write to a hole fails then when the kernel writes its pages back, which the
// kernel says once.
func (h *host) crowdedDevice(t *testing.T) (device *lab.Loop, fill func(t *testing.T) (room func())) {
	t.Helper()
	fs, err := lab.LoopFS(t.Context(), filepath.Join(h.Libvirtd.Dir, "crowded"), "ext4", volumeBytes>>20+volumeBytes>>21)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(fs.Dir, "filler")
	return h.device(t, fs.Dir, volumeBytes), func(t *testing.T) func() {
		t.Helper()
		unix.Sync()
		files, err := filepath.Glob(filepath.Join(fs.Dir, "device-*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		tool(t, "fallocate", "--dig-holes", files[0])
		unix.Sync()
		fulldisk.Fill(t, filler)
		unix.Sync()
		fulldisk.Fill(t, filler+"2") // what the first one was given back
		return func() {
			if err := errors.Join(os.Remove(filler), os.Remove(filler+"2")); err != nil {
				t.Error(err)
			}
		}
	}
}

// forgetPages has the kernel forget what it has in memory of a device and has written, or could not
// write.
func forgetPages(t *testing.T, device string) {
	t.Helper()
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

// Linux says once that it could not store what the fold wrote to dst. The next complete writes all
// of it again, and cancel does without it.
func TestADestinationWithoutRoomForAWhileLosesNothing(t *testing.T) {
	leftToTestE2E(t)
	for _, cache := range []string{"unsafe", "writeback"} {
		for _, want := range []api.MigrationState{api.MigrationCompleted, api.MigrationCancelled} {
			t.Run(cache+", "+string(want), func(t *testing.T) {
				h := startHost(t)
				dst, fill := h.crowdedDevice(t)
				disk := h.diskIn(t, h.poolA, api.FormatRaw)
				disk.Cache = cache
				g := h.runningGuest(t, disk)
				v := g.start(t, "vda", "--to-path", dst.Path)
				v.copy(t)
				room := fill(t)
				g.writes(t)
				h.mustFail(t, v.completeArgs()...)
				m := get[api.Migration](t, h, "migration", "migration", "show", v.ID)
				if m.State != api.MigrationCopied || m.Error == nil {
					t.Errorf("the migration is %s: %v", m.State, m.Error)
				}
				t.Log(m.Error)
				forgetPages(t, dst.Path)
				room()
				g.outlivesItsJob(t)
				if want == api.MigrationCancelled {
					v.cancel(t)
				} else {
					v.complete(t)
					forgetPages(t, dst.Path)
				}
				if g.state(t) == "running" {
					g.assertSettledAndGoOn(t)
				}
				g.assertSettled(t)
			})
		}
	}
}
