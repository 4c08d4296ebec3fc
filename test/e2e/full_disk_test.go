// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// The file system of the overlays and of the daemon's journal has no byte left. The
// guest stands still, since its overlay cannot grow, and goes on where its migration
// ends: nothing that was acknowledged is missing.
func TestAMigrationEndsOnAFullDiskWithEveryWrite(t *testing.T) {
	leftToTestE2E(t)
	for _, c := range []struct {
		name string
		end  func(*move, *testing.T)
	}{
		{"complete", (*move).finish},
		{"cancel", (*move).cancel},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, state := startHostWithState(t)
			g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
			v := g.start(t, "vda", "--to-pool", "b")
			v.copy(t)
			g.writes(t)
			fill(t, filepath.Join(state, "filler"))
			if err := g.WaitState(t.Context(), "paused"); err != nil {
				t.Fatal(err)
			}
			c.end(v, t)
			if err := g.WaitState(t.Context(), "running"); err != nil {
				t.Fatal(err)
			}
			g.assertSettledAndGoOn(t)
			g.assertSettled(t)
		})
	}
}

// What qemu-img folds goes to an image elsewhere.
func TestAFoldOfAStoppedGuestNeedsNoRoomOnTheFullDisk(t *testing.T) {
	leftToTestE2E(t)
	h, state := startHostWithState(t)
	g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	filler := filepath.Join(state, "filler")
	for name, end := range foldEnds {
		t.Run(name, func(t *testing.T) {
			f := end(g, t)
			fill(t, filler)
			h.ctl(t, f.args...)
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			f.ended(t)
		})
	}
	g.boot(t)
	g.assertSettled(t)
}

// Room for the overlay is all that such a guest waits for.
func TestAGuestWhoseOverlayWasFullGoesOnWhenThereIsRoom(t *testing.T) {
	leftToTestE2E(t)
	h, state := startHostWithState(t)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	filler := filepath.Join(state, "filler")
	for range 2 {
		fill(t, filler)
		if err := g.WaitState(t.Context(), "paused"); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if err := g.WaitState(t.Context(), "running"); err != nil {
			t.Fatal(err)
		}
		g.writes(t)
	}
	v.copy(t)
	v.finish(t)
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}

// A start leaves everything as it is where the guest's writes would not have room.
func TestAStartWithoutRoomForTheOverlayIsRefused(t *testing.T) {
	leftToTestE2E(t)
	h, state := startHostWithState(t)
	running, stopped := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw)), h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	filler := filepath.Join(state, "filler")
	fill(t, filler)
	for _, g := range []*guest{running, stopped} {
		g.refusesToMove(t, "vda", api.CodeNoSpace, "--to-pool", "b")
	}
	running.writes(t)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	running.migrate(t, "vda", "--to-pool", "b")
	running.assertSettled(t)
	stopped.assertSettled(t)
}

// startHostWithState is startHost with a small file system for what the daemon keeps: its
// journal, guards and overlays.
func startHostWithState(t *testing.T) (h *host, state string) {
	t.Helper()
	const sizeMiB = 160
	lab.Require(t)
	t.Parallel()
	dir := lab.TempDir(t)
	nothingRemains(t, dir)
	fs, err := lab.LoopFS(t.Context(), filepath.Join(dir, "state"), "ext4", sizeMiB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	return startHostIn(t, dir), fs.Dir
}

// fill writes a file until there is no room for another block, not for root either.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		switch _, err := f.Write(make([]byte, size)); {
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		case err != nil:
			t.Fatal(err)
		}
	}
}
