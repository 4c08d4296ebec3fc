// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/kinds"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// moves are from each format to each, one after the other. The first and the last by themselves are
// to the other format and back.
var moves = []struct {
	pool   string
	format api.Format
}{
	{"b", api.FormatQcow2}, {"a", api.FormatQcow2}, {"b", api.FormatRaw}, {"a", api.FormatRaw},
}

func TestPausedGuestIsMovedAndStaysPaused(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	g.pause(t)
	for _, to := range moves {
		m := g.migrate(t, "vda", "--to-pool", to.pool, "--to-format", string(to.format))
		t.Logf("%s to %s: %s", m.Src.Format, m.Dst.Format, m.Method)
		if state := g.state(t); state != "paused" {
			t.Fatalf("the guest was paused by its user, and is %s after the move", state)
		}
		g.assertAtRest(t)
	}
	v := g.start(t, "vda", "--to-pool", "b")
	v.cancel(t)
	if state := g.state(t); state != "paused" {
		t.Errorf("the guest was paused by its user, and is %s after a cancel", state)
	}
	g.resume(t)
	g.assertSettledAndGoOn(t)

	// Paused in the middle of a move, too.
	v = g.start(t, "vda", "--to-pool", "b")
	g.pause(t)
	v.copy(t)
	v.complete(t)
	if state := g.state(t); state != "paused" {
		t.Errorf("the guest was paused in the middle, and is %s at the end", state)
	}
	g.resume(t)
	g.assertSettled(t)
}

func TestStoppedGuestIsMovedAndBootsFromTheDestination(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	for i, to := range moves {
		if testing.Short() && i%3 != 0 {
			t.Logf("the move to pool %s as %s is left to make test-e2e", to.pool, to.format)
			continue
		}
		m := g.migrate(t, "vda", "--to-pool", to.pool, "--to-format", string(to.format))
		if state := g.state(t); state != "shut off" {
			t.Fatalf("the guest was stopped, and is %s after the move", state)
		}
		t.Run(string(m.Src.Format)+" to "+string(m.Dst.Format), g.assertSettled)
	}
	// Started while a move is in the middle, it is switched as it runs.
	v := g.start(t, "vda", "--to-pool", "b", "--to-format", "qcow2")
	g.boot(t)
	v.copy(t)
	v.complete(t)
	g.assertSettled(t)
}

// untouched is the history of a volume that no guest ever wrote to.
func untouched(d lab.Disk) *lab.History {
	return &lab.History{Stream: workload.Stream{Seed: d.Seed, Blocks: volumeBytes / workload.BlockSize, Mix: workload.DefaultMix}, Fill: d.Fill}
}

func TestVolumeThatIsNotAttachedIsMoved(t *testing.T) {
	h, a, _ := sharedPools(t)
	d := h.diskIn(t, a, api.FormatRaw)
	device := h.device(t, a, volumeBytes)
	v := get[api.Volume](t, h, "volume", "volume", "adopt", "data", "--path", d.Path, "--format", "raw")
	for _, to := range [][]string{
		{"--to-pool", "b"},
		{"--to-pool", "a", "--to-format", "qcow2"},
		{"--to-path", device.Path, "--to-format", "raw"},
	} {
		h.migrateUnattached(t, d, to...)
	}

	// Step by step it is named by its migration.
	h.fails(t, api.ExitUsage, api.CodeInvalidArgument, "migration", "start", v.ID)
	id := idOf(t, h.ctl(t, "--no-wait", "volume", "migrate", "data", "--to-pool", "b", "--bandwidth", "1MiB/s"))
	h.untilCopying(t, id)
	m := get[api.Migration](t, h, "migration", "migration", "cancel", id)
	if m.State != api.MigrationCancelled {
		t.Errorf("cancel ended as %s", m.State)
	}
	h.noteMove(t, m, kinds.NoGuest)
	h.assertUnattached(t, d, m.Src)
	after := get[api.Volume](t, h, "volume", "volume", "show", "data")
	if after.ID != v.ID || after.Generation <= v.Generation {
		t.Errorf("identity and generation were %s, %d and are %s, %d", v.ID, v.Generation, after.ID, after.Generation)
	}
	h.ctl(t, "volume", "delete", "data", "--yes")
	if !exists(t, device.Path) {
		t.Errorf("%s is gone with the volume", device.Path)
	}
}

// migrateUnattached moves the volume called data, which no instance has, in one go. It holds what
// it was filled with.
func (h *host) migrateUnattached(t *testing.T, d lab.Disk, to ...string) api.Migration {
	t.Helper()
	m := get[api.Migration](t, h, "migration", append([]string{"volume", "migrate", "data"}, to...)...)
	if m.State != api.MigrationCompleted || m.Method != methodOffline {
		t.Fatalf("ended as %s by %s: %+v", m.State, m.Method, m)
	}
	h.noteMove(t, m, kinds.NoGuest)
	h.assertUnattached(t, d, m.Dst)
	return m
}

// assertUnattached claims that the volume called data is at rest at the location
// and holds what it was filled with.
func (h *host) assertUnattached(t *testing.T, d lab.Disk, l api.Location) {
	t.Helper()
	v := get[api.Volume](t, h, "volume", "volume", "show", "data")
	if v.Location.Path != l.Path || v.Status != api.VolumeAvailable || v.MigrationID != "" {
		t.Errorf("volume is not at rest at %s: %+v", l.Path, v)
	}
	if w := get[api.Which](t, h, "which", "volume", "which", "data"); !w.Agree {
		t.Errorf("volume which: %+v", w)
	}
	r, err := lab.Check(t.Context(), volumeAt(l), untouched(d))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}
