// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// An operator commits the overlay of a migration as if it were a snapshot of his own. The
// guest is back on src then, and cancel sees that.
func TestAnOverlayThatAnOperatorHasCommittedIsCancelledOntoSrc(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	src := g.volume(t, "vda").Location
	for _, when := range []struct {
		name string
		do   func(*move, *testing.T)
	}{
		{"after the copy", (*move).copy},
		{"while another tool copies", func(*move, *testing.T) {}},
		{"of a guest that was started on it", func(_ *move, t *testing.T) { g.powerOff(t); g.boot(t) }},
	} {
		t.Run(when.name, func(t *testing.T) {
			args := []string{"--to-pool", "b"}
			if when.name == "while another tool copies" {
				args = append(args, "--external-copy")
			}
			v := g.start(t, "vda", args...)
			g.writes(t)
			when.do(v, t)
			overlay := filepath.Join(h.Overlays(), v.ID+".qcow2")
			h.virsh(t, "blockcommit", g.Name, "vda", "--active", "--pivot", "--wait")
			g.writes(t)
			v.cancel(t)
			if at := g.volume(t, "vda").Location; at != src {
				t.Errorf("the volume is at %+v, want %+v", at, src)
			}
			if exists(t, v.Dst.Path) {
				t.Error("the destination is left")
			}
			// It is kept, and nobody has it.
			mustContain(t, v.Remark, overlay)
			if modes := g.openModes(t, overlay); len(modes) > 0 {
				t.Errorf("the guest has the overlay open: %v", modes)
			}
			if err := os.Remove(overlay); err != nil {
				t.Error(err)
			}
			eventually(t, "the instance may start again", func() bool { return h.chainPart(t).Status == "ok" })
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}
