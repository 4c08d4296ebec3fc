// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestFoldsGiveWayToTheGuest(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	for _, c := range []struct {
		name string
		args func(*move) []string
		ends api.MigrationState
	}{
		{"complete", (*move).completeArgs, api.MigrationCompleted},
		{"cancel", (*move).cancelArgs, api.MigrationCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			limited := int64(0)
			for trial := 0; limited == 0 && trial < 5; trial++ { // a fold may end before its first limit
				v := g.start(t, "vda", "--to-pool", otherPool(g.volume(t, "vda")), "--pace", "full")
				v.copy(t)
				eventually(t, "the overlay is larger than what is folded in a moment", func() bool {
					return get[api.Migration](t, h, "migration", "migration", "show", v.ID).OverlayBytes > volumeBytes/4
				})
				h.ctl(t, append([]string{"--no-wait"}, c.args(v)...)...)
				eventually(t, "it ends", func() bool {
					if limit := g.jobLimit(t); limit > 0 {
						limited = limit
					}
					return get[api.Migration](t, h, "migration", "migration", "show", v.ID).State == c.ends
				})
			}
			if limited < 6400<<10 {
				t.Errorf("the last limit that the fold was seen to have is %d", limited)
			}
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}

// jobLimit is the limit that the block job on vda has, 0 if it has none, or if there is none.
func (g *guest) jobLimit(t *testing.T) int64 {
	t.Helper()
	for line := range strings.Lines(g.host.virsh(t, "blockjob", g.Name, "vda", "--raw", "--bytes")) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), "bandwidth="); is {
			limit, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return limit
		}
	}
	return 0
}
