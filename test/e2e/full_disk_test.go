// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/fulldisk"
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
			fulldisk.Fill(t, filepath.Join(state, "filler"))
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
			fulldisk.Fill(t, filler)
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

// The daemon is stopped on the full disk, as by an upgrade, and what that frees is taken as well.
func TestADaemonThatEndsOnAFullDiskStartsThereAndItsMovesGoOn(t *testing.T) {
	leftToTestE2E(t)
	for name, end := range map[string]func(*move, *testing.T){"complete": (*move).finish, "cancel": (*move).cancel} {
		t.Run(name, func(t *testing.T) {
			g, v, _ := stoppedOnAFullDisk(t)
			if err := g.host.StartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
			end(v, t)
			g.assertSettledAndGoOn(t)
			g.assertSettled(t)
		})
	}
}

// Somebody has removed the reserve. A daemon that has to make the journal's log does not start,
// and says why. If the log is there, because its predecessor had no room to copy it into the
// journal, it starts and says what its journal waits for.
func TestADaemonWithNothingKeptForItsJournalGoesOnWhenThereIsRoom(t *testing.T) {
	leftToTestE2E(t)
	g, v, state := stoppedOnAFullDisk(t)
	if err := os.Remove(filepath.Join(state, "reserve")); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(state, "more")
	fulldisk.Fill(t, filler)
	refused := g.host.StartDaemon(t.Context())
	log, err := os.ReadFile(g.host.Log())
	if err != nil {
		t.Fatal(err)
	}
	if refused != nil {
		mustContain(t, string(log), "make room in "+state)
	} else {
		mustContain(t, string(log), "probe the journal: journal unavailable", "make room in the state directory")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if refused != nil {
		if err := g.host.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	v.finish(t)
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}

// stoppedOnAFullDisk has a guest stand still in a move that is copied, for want of room, and no
// daemon. Journal, guards and overlays are in state.
func stoppedOnAFullDisk(t *testing.T) (g *guest, v *move, state string) {
	t.Helper()
	h, state := startHostWithState(t)
	g = h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	v = g.start(t, "vda", "--to-pool", "b")
	v.copy(t)
	g.writes(t)
	fulldisk.Fill(t, filepath.Join(state, "filler"))
	if err := g.WaitState(t.Context(), "paused"); err != nil {
		t.Fatal(err)
	}
	h.StopDaemon()
	fulldisk.Fill(t, filepath.Join(state, "freed"))
	return g, v, state
}

// Room for the overlay is all that such a guest waits for.
func TestAGuestWhoseOverlayWasFullGoesOnWhenThereIsRoom(t *testing.T) {
	leftToTestE2E(t)
	h, state := startHostWithState(t)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	filler := filepath.Join(state, "filler")
	for range 2 {
		fulldisk.Fill(t, filler)
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
	fulldisk.Fill(t, filler)
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

// A guest is slowed down before its overlay is full, across deaths of the daemon and of libvirtd,
// and its owner has in the end what he had set, to the last word.
func TestAGuestNearAFullDiskIsSlowedAndHasItsOwnLimitsInTheEnd(t *testing.T) {
	leftToTestE2E(t)
	for name, end := range map[string]func(*move, *testing.T){
		"complete": func(v *move, t *testing.T) { v.copy(t); v.finish(t) },
		"cancel":   (*move).cancel,
	} {
		t.Run(name, func(t *testing.T) {
			h, state := startHostWithState(t)
			h.Flags = []string{"--overlay-throttle-below-bytes", fmt.Sprint(int64(1) << 30), "--overlay-throttle-seconds", "10"}
			h.restartDaemon(t)
			g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
			tune := func() string { return h.virsh(t, "blkdeviotune", g.Name, "vda", "--live") }
			h.virsh(t, "blkdeviotune", g.Name, "vda", "--live", "--read-bytes-sec", "80000000", "--write-bytes-sec", "50000000", "--total-iops-sec", "7000")
			own := tune()
			v := g.start(t, "vda", "--to-pool", "b")
			slowed := func(below int64) (limit int64) {
				t.Helper()
				eventually(t, fmt.Sprint("the guest may write less than ", below), func() bool {
					for line := range strings.Lines(tune()) {
						if value, is := strings.CutPrefix(strings.TrimSpace(line), "write_bytes_sec:"); is {
							limit, _ = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
						}
					}
					return limit > 0 && limit < below
				})
				return limit
			}
			first := slowed(20_000_000)
			eventually(t, "the migration says that its guest is slowed", func() bool { // libvirt has the limit a moment earlier
				return strings.Contains(h.ctl(t, "migration", "show", v.ID), "guest slowed")
			})
			mustContain(t, h.ctl(t, "migration", "show", v.ID), "overlay_throttle_below_bytes: 1GiB")
			h.restartDaemon(t)
			if err := h.Libvirtd.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := h.Libvirtd.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			filler := filepath.Join(state, "filler")
			if err := os.WriteFile(filler, make([]byte, 50<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			slowed(first - first/5)
			g.writes(t)
			end(v, t)
			if now := tune(); now != own {
				t.Errorf("the guest's limits were\n%sand are\n%s", own, now)
			}
			g.assertSettledAndGoOn(t)
			g.assertSettled(t)
		})
	}
}

// startHostWithState is startHost with a small file system for what the daemon keeps: its
// journal, guards and overlays.
func startHostWithState(t *testing.T) (h *host, state string) {
	t.Helper()
	return startHostWithFS(t, "state", 160)
}

// startHostWithFS is startHost with a small file system in its directory.
func startHostWithFS(t *testing.T, name string, sizeMiB int64) (h *host, at string) {
	t.Helper()
	lab.Require(t)
	t.Parallel()
	dir := lab.TempDir(t)
	nothingRemains(t, dir)
	fs, err := lab.LoopFS(t.Context(), filepath.Join(dir, name), "ext4", sizeMiB)
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
