// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// mirror moves the first disk of the guest by mirror. No overlay may be made for it.
func (g *guest) mirror(t *testing.T, args ...string) api.Migration {
	t.Helper()
	m := g.migrate(t, "vda", append([]string{"--method", "mirror"}, args...)...)
	if m.Method != "mirror" || m.ExposedSeconds != 0 || m.StallMS.Start != nil {
		t.Errorf("migration was made by %s, with %v s of exposure and a stall of %v at its start", m.Method, m.ExposedSeconds, m.StallMS.Start)
	}
	if got := g.volume(t, "vda").Location; got.Path != m.Dst.Path {
		t.Errorf("the volume is at %s, the migration went to %s", got.Path, m.Dst.Path)
	}
	return m
}

func TestMirrorMovesADiskUnderARunningGuest(t *testing.T) {
	h, a, b := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	device := h.device(t, a, volumeBytes)
	for i, step := range []struct {
		name string
		to   []string
	}{
		{"file to file, compared", []string{"--to-pool", "b", "--verify", "full", "--delete-source"}},
		{"file to device", []string{"--to-path", device.Path}},
		{"device to file", []string{"--to-path", filepath.Join(b, "mirrored.raw")}},
		{"raw to qcow2", []string{"--to-pool", "a", "--to-format", "qcow2"}},
		{"qcow2 to raw", []string{"--to-pool", "b", "--to-format", "raw"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			if i > 2 {
				leftToTestE2E(t)
			}
			m := g.mirror(t, step.to...)
			if exists(t, m.Src.Path) == m.DeleteSource {
				t.Errorf("delete_source is %v, and whether the source is there the same: %s", m.DeleteSource, m.Src.Path)
			}
			g.writes(t)
			g.assertSettledAndGoOn(t)
		})
	}
	t.Run("paused", func(t *testing.T) {
		leftToTestE2E(t)
		g.pause(t)
		g.mirror(t, "--to-pool", "a")
		if state := g.state(t); state != "paused" {
			t.Errorf("the guest was paused by its user, and is %s after the move", state)
		}
		g.assertAtRest(t)
		g.resume(t)
		g.assertSettledAndGoOn(t)
	})
	t.Run("cancelled in the middle", func(t *testing.T) {
		before := g.volume(t, "vda")
		m := g.mirrorPartly(t, "--to-pool", otherPool(before))
		g.writes(t)
		h.ctl(t, "migration", "cancel", before.Attachments[0].ID)
		m = get[api.Migration](t, h, "migration", "migration", "show", m.ID)
		if m.State != api.MigrationCancelled || exists(t, m.Dst.Path) {
			t.Errorf("migration is %s, and that %s is still there is %v", m.State, m.Dst.Path, exists(t, m.Dst.Path))
		}
		if got := g.volume(t, "vda").Location; got != before.Location {
			t.Errorf("the volume is at %+v, and was at %+v", got, before.Location)
		}
		g.assertSettledAndGoOn(t)
	})
	g.assertSettled(t)
}

// mirrorPartly begins to move vda by mirror and returns in the middle. How fast it
// goes is capped.
func (g *guest) mirrorPartly(t *testing.T, args ...string) api.Migration {
	t.Helper()
	args = append([]string{"--no-wait", "volume", "migrate", g.volumeName("vda"), "--method", "mirror", "--bandwidth", "1MiB/s"}, args...)
	id := idOf(t, g.host.ctl(t, args...))
	g.host.untilCopying(t, id)
	return get[api.Migration](t, g.host, "migration", "migration", "show", id)
}

func TestGuestMayEndAndBeginInTheMiddleOfAMirror(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	for _, c := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"reset", func(t *testing.T) {
			if err := g.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"destroy and start", func(t *testing.T) { g.destroy(t); g.boot(t) }},
		{"pause and resume", func(t *testing.T) { g.pause(t); g.resume(t) }},
		{"daemon restarted", func(t *testing.T) { h.restartDaemon(t) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := g.mirrorPartly(t, "--to-pool", otherPool(g.volume(t, "vda")))
			c.do(t)
			h.ctl(t, "migration", "set", m.ID, "--bandwidth", "0")
			h.ctl(t, "migration", "watch", m.ID)
			if m = get[api.Migration](t, h, "migration", "migration", "show", m.ID); m.State != api.MigrationCompleted || m.Method != "mirror" {
				t.Fatalf("the migration ended as %s: %+v", m.State, m)
			}
			g.seesItsDisks(t)
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}

func TestMirrorIsRefusedWhereItCannotBeMade(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	slots := g.persistentSlots(t)
	file := func(bytes int64) string {
		t.Helper()
		path := filepath.Join(b, fmt.Sprintf("%d.raw", bytes))
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, bytes)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, says := range map[string]string{
		file(volumeBytes - 512):              "512 bytes smaller",
		h.device(t, b, volumeBytes-512).Path: "512 bytes smaller",
		file(volumeBytes + 512):              "no multiple of 4096",
	} {
		e := h.refuses(t, api.CodeSizeMismatch, "volume", "migrate", g.volumeName("vda"), "--method", "mirror", "--to-path", path)
		mustContain(t, e.Message, path, says)
	}
	for _, args := range [][]string{
		{"--to-pool", "b", "--external-copy"},
		{"--to-pool", "b", "--to-format", "qcow2", "--verify", "full"},
		{"--to-pool", "b", "--delete-source"},
	} {
		h.refuses(t, api.CodeInvalidArgument, append([]string{"volume", "migrate", g.volumeName("vda"), "--method", "mirror"}, args...)...)
	}
	h.refuses(t, api.CodeInvalidArgument, "migration", "start", g.attachment(t, "vda").ID, "--method", "mirror", "--to-pool", "b")
	if now := g.persistentSlots(t); !slices.Equal(slots, now) {
		t.Errorf("the definition was %+v and is %+v", slots, now)
	}
	g.assertSettled(t)
}
