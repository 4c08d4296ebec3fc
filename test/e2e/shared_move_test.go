// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestAVolumeThatGuestsShareMovesUnderBoth(t *testing.T) {
	leftToTestE2E(t)
	s := startSharers(t, startHost(t))
	s.movesEachWay(t, func(*testing.T) {})
	s.end(t)
}

// movesEachWay moves the volume with both guests paused, and while both write. After each move both
// guests have to go on writing, and moved is called.
func (s *sharers) movesEachWay(t *testing.T, moved func(*testing.T)) {
	t.Helper()
	for _, way := range [][]string{{"--pause-all"}, {"--live-shared", "--max-pause", "30s"}} {
		t.Run(way[0], func(t *testing.T) {
			s.ctl(t, append([]string{"volume", "migrate", s.volume.name, "--to-pool", otherPool(s.volume.show(t)), "--yes"}, way...)...)
			s.goOnWriting(t)
			moved(t)
		})
	}
}

func TestADrainMovesTheVolumesOfSeveralGuestsAtOnce(t *testing.T) {
	leftToTestE2E(t)
	h := startHost(t)
	var guests []*guest
	for range 3 {
		guests = append(guests, h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw), h.diskIn(t, h.poolA, api.FormatRaw)))
	}
	h.ctl(t, "pool", "drain", "a", "--to", "b", "--parallel", "2")
	for _, g := range guests {
		g.writes(t)
		for i := range g.disks {
			if pool := g.volume(t, target(i)).Location.Pool; pool != "b" {
				t.Errorf("%s of guest %s is in pool %s", target(i), g.Name, pool)
			}
		}
		g.assertSettled(t)
	}
}
