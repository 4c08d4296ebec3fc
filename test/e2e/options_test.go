// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

func TestFlagsDoWhatTheySay(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	name := g.volumeName("vda")

	t.Run("without delete-source the source stays as it was frozen", func(t *testing.T) {
		m := g.migrate(t, "vda", "--to-pool", "b")
		if !exists(t, m.Src.Path) {
			t.Errorf("the source is gone: %s", m.Src.Path)
		}
		g.assertSettledAndGoOn(t)
	})
	t.Run("delete-source deletes it", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", "a", "--delete-source")
		v.copy(t)
		if !exists(t, v.Src.Path) {
			t.Fatalf("the source is gone before the switch: %s", v.Src.Path)
		}
		v.complete(t)
		g.assertSettledAndGoOn(t)
	})
	t.Run("verify none", func(t *testing.T) {
		if m := g.migrate(t, "vda", "--to-pool", "b", "--verify", "none"); m.Verify != "none" {
			t.Errorf("verify is %q", m.Verify)
		}
		g.assertSettledAndGoOn(t)
	})
	t.Run("no-wait, watch, and a bandwidth that changes", func(t *testing.T) {
		begin := time.Now()
		id := idOf(t, h.ctl(t, "--no-wait", "volume", "migrate", name, "--to-pool", "a", "--bandwidth", "1MiB/s"))
		h.untilCopying(t, id)
		m := get[api.Migration](t, h, "migration", "migration", "set", id, "--bandwidth", "0")
		if m.BandwidthBytesPerSecond != 0 {
			t.Errorf("the cap is %d, want none", m.BandwidthBytesPerSecond)
		}
		h.ctl(t, "migration", "watch", id)
		took := time.Since(begin)
		if m = get[api.Migration](t, h, "migration", "migration", "show", id); m.State != api.MigrationCompleted {
			t.Errorf("watch returned at state %s", m.State)
		}
		if atOldRate := volumeBytes / (1 << 20) * time.Second; took > atOldRate/2 {
			t.Errorf("it took %v, with the first cap it would have been %v", took, atOldRate)
		}
		g.assertSettledAndGoOn(t)
	})
	t.Run("progress json", func(t *testing.T) {
		out := h.ctl(t, "--progress", "json", "volume", "migrate", name, "--to-pool", "b")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		mustContain(t, lines[len(lines)-1], `"state":"completed"`, `"schema_version":1`)
		g.assertSettledAndGoOn(t)
	})
	t.Run("in words", func(t *testing.T) {
		out := h.ctl(t, "volume", "migrate", name, "--to-pool", "a")
		mustContain(t, out, "Moved volume "+name, "stalled", "released, not deleted")
	})
	g.assertSettled(t)
}
