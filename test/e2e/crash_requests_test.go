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

// moment is a point on the way of a request, at which the daemon dies.
type moment struct {
	state string // of the guest, when the request is made
	begin func(*guest, *testing.T) []string
	at    point
}

// moments are one of each phase.
var moments = map[string]moment{
	"after the switch, by calls": {"running", (*guest).copyThenComplete, "migration_complete.resume.after_do"},
	"start":                      {"running", (*guest).moveElsewhere, "migration_start.switch_to_overlay.after_do"},
	"copy":                       {"running", (*guest).moveElsewhere, "migration_copy.copy.after_started"},
	"claim":                      {"running", (*guest).moveElsewhere, "migration_complete.claim.after_started"},
	"complete":                   {"running", (*guest).moveElsewhere, "migration_complete.mirror.after_do"},
	"pivot":                      {"running", (*guest).moveElsewhere, "migration_complete.pivot.after_do"},
	"after the switch":           {"running", (*guest).moveElsewhere, "migration_complete.resume.after_do"},
	"cancel":                     {"running", (*guest).startThenCancel, "migration_cancel.commit.after_do"},
	"stopped, start":             {"stopped", (*guest).moveElsewhere, "migration_start.switch_to_overlay.after_do"},
	"stopped, copy":              {"stopped", (*guest).moveElsewhere, "migration_copy.copy.after_started"},
	"stopped, complete":          {"stopped", (*guest).runThenComplete, "migration_complete.fold.after_do"},
	"stopped, cancel":            {"stopped", (*guest).runThenCancel, "migration_cancel.fold.after_do"},
}

// guest is one in the state of the moment, on a host of its own.
func (m moment) guest(t *testing.T) *guest {
	t.Helper()
	g := crashGuest(t)
	g.be(t, m.state)
	return g
}

// dies makes the request, whose migration it returns when the daemon has died.
func (m moment) dies(t *testing.T, g *guest) (id string) {
	t.Helper()
	h := g.host
	h.restartDaemon(t, faultPoints+"="+string(m.at)+"=kill")
	x := &trial{host: h}
	r := x.ask(t, m.begin(g, t))
	if err := h.DaemonDied(r.lost); err != nil {
		t.Fatalf("the way does not lead past %s: %v", m.at, err)
	}
	return answerOf[api.Migration](t, r).ID
}
