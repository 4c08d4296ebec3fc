// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestDiskThatIsNamedByItsPoolIsMoved(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	d := h.diskIn(t, a, api.FormatQcow2)
	d.Pool = "a"
	h.virsh(t, "pool-refresh", "a")
	g := h.runningGuest(t, d)
	if l := g.volume(t, "vda").Location; l.Path != d.Path || l.Pool != "a" {
		t.Fatalf("adopted as %+v, want what pool a has at %s", l, d.Path)
	}
	v := g.start(t, "vda", "--to-pool", "b")
	v.cancel(t)
	g.namesByPath(t, "vda", d.Path)
	g.writes(t)
	m := g.migrate(t, "vda", "--to-pool", "b", "--to-format", "raw")
	g.namesByPath(t, "vda", m.Dst.Path)
	g.assertSettledAndGoOn(t)
	g.powerOff(t)
	g.migrate(t, "vda", "--to-pool", "a")
	g.boot(t)
	g.assertSettled(t)
}

// namesByPath claims that the definition names the image of a disk by its path.
func (g *guest) namesByPath(t *testing.T, target, path string) {
	t.Helper()
	for _, s := range g.persistentSlots(t) {
		if s.Target == target && s.Source != path {
			t.Errorf("the definition names %q, want the path %s", s.Source, path)
		}
	}
}
