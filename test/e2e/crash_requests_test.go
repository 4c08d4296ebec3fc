// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// ask is a request of the user that moves or brings back a guest's disk, in one of the
// ways that are different all through.
type ask struct {
	name  string
	state string // of the guest, when the request is made: running or stopped
	want  api.MigrationState
	begin func(*guest, *testing.T) []string
	kind  string // of the ops that the request is
}

var asks = []ask{
	{"move", "running", api.MigrationCompleted, (*guest).moveElsewhere, "migration"},
	{"cancel", "running", api.MigrationCancelled, (*guest).startThenCancel, "migration_cancel"},
	moveOfAStoppedGuest,
	{"fold of a stopped guest into dst", "stopped", api.MigrationCompleted, (*guest).runThenComplete, "migration_complete"},
	{"fold of a stopped guest into src", "stopped", api.MigrationCancelled, (*guest).runThenCancel, "migration_cancel"},
}

var moveOfAStoppedGuest = ask{"move of a stopped guest", "stopped", api.MigrationCompleted, (*guest).moveElsewhere, "migration"}

// trial makes the request of this guest, which is in the same state afterwards.
func (a ask) trial(t *testing.T, g *guest) *trial {
	t.Helper()
	g.be(t, a.state)
	return g.trial(a.want, g.state(t), func(t *testing.T) []string { return a.begin(g, t) })
}

// trialThatStarts is trial for what may start the guest meanwhile, or not.
func (a ask) trialThatStarts(g *guest) *trial {
	return &trial{
		host: g.host, want: a.want,
		begin: func(t *testing.T) []string {
			g.be(t, a.state)
			return a.begin(g, t)
		},
		settled: func(t *testing.T, m api.Migration) {
			now := g.state(t)
			if now == "running" {
				g.seesItsDisks(t)
				g.write(t)
			}
			g.endedRight(t, m, now)
		},
	}
}
