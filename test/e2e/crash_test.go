// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
)

// The deaths of the daemon. At each point of a migration it is killed and
// started again; nothing else is done. Every write that the guest was told is
// done has to be there afterwards, with nothing left behind.

func TestKillAtEveryStepOfAMoveUnderARunningGuest(t *testing.T) {
	g := crashGuest(t)
	x := g.trial(api.MigrationCompleted, "running", g.moveElsewhere)
	x.strikeAt(t, x.way(t).chosen(t), g.host.daemonDies(nothingElse))
	g.assertSettled(t)
}

func TestKillAtEveryStepOfACancelUnderARunningGuest(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	x := g.trial(api.MigrationCancelled, "running", g.startThenCancel)
	x.strikeAt(t, x.way(t).of("migration_cancel"), g.host.daemonDies(nothingElse))
	g.assertSettled(t)
}

func TestKillAtEveryStepOfAMoveOfAStoppedGuest(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	g.powerOff(t)
	x := g.trial(api.MigrationCompleted, "shut off", g.moveElsewhere)
	x.strikeAt(t, x.way(t), g.host.daemonDies(nothingElse))
	g.assertSettled(t)
}

// The overlay of a stopped guest holds something only if the guest ran since the
// start.
func TestKillAtEveryStepOfTheFoldOfAStoppedGuest(t *testing.T) {
	crash.LeftToTestCrash(t)
	for _, c := range []struct {
		name  string
		want  api.MigrationState
		begin func(*guest, *testing.T) []string
		kind  string
	}{
		{"complete", api.MigrationCompleted, (*guest).runThenComplete, "migration_complete"},
		{"cancel", api.MigrationCancelled, (*guest).runThenCancel, "migration_cancel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := crashGuest(t)
			g.powerOff(t)
			x := g.trial(c.want, "shut off", func(t *testing.T) []string { return c.begin(g, t) })
			x.strikeAt(t, x.way(t).of(c.kind), g.host.daemonDies(nothingElse))
			g.assertSettled(t)
		})
	}
}

func TestKillAtEveryStepOfAMoveOfAVolumeThatIsNotAttached(t *testing.T) {
	crash.LeftToTestCrash(t)
	h := startHost(t)
	a := h.poolA
	d := h.diskIn(t, a, api.FormatRaw)
	h.ctl(t, "volume", "adopt", "data", "--path", d.Path, "--format", "raw")
	elsewhere := func(t *testing.T) []string {
		return []string{"data", "--delete-source", "--to-pool", otherPool(get[api.Volume](t, h, "volume", "volume", "show", "data"))}
	}
	settled := func(t *testing.T, m api.Migration) {
		h.assertUnattached(t, d, h.assertOnlyOneIsLeft(t, m))
	}
	move := &trial{
		host: h, want: api.MigrationCompleted, settled: settled,
		begin: func(t *testing.T) []string { return append([]string{"volume", "migrate"}, elsewhere(t)...) },
	}
	move.strikeAt(t, move.way(t), h.daemonDies(nothingElse))
	cancel := &trial{
		host: h, want: api.MigrationCancelled, settled: settled,
		begin: func(t *testing.T) []string {
			// So slow a copy is in the middle when it is cancelled.
			args := append([]string{"--no-wait", "volume", "migrate", "--bandwidth", "1MiB/s"}, elsewhere(t)...)
			id := idOf(t, h.ctl(t, args...))
			h.untilCopying(t, id)
			return []string{"migration", "cancel", id}
		},
	}
	cancel.strikeAt(t, cancel.way(t).of("migration_cancel"), h.daemonDies(nothingElse))
}

func TestKillWhileTheCommandWaitsDoesNotEndTheCommand(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	x := g.trial(api.MigrationCompleted, "running", g.moveElsewhere)
	x.waits = true
	ps := x.way(t).where(func(p point) bool { return p.isAfter("do") })
	if !crash.Every() {
		ps = ps.where(func(p point) bool { return p.step() == "copy" || p.step() == "pivot" })
	}
	x.strikeAt(t, ps, g.host.daemonDies(nothingElse))
	g.assertSettled(t)
}

// crashGuest is a guest that writes, on a host with the pools a and b. Its disk
// is raw, so that it need not be stopped to be read.
func crashGuest(t *testing.T) *guest {
	t.Helper()
	h := startHost(t)
	a := h.poolA
	return h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
}

// trial is one of requests for the guest's disk. The guest is in that state when
// the request is made, and has to be when the migration is over.
func (g *guest) trial(want api.MigrationState, state string, begin func(*testing.T) []string) *trial {
	x := &trial{
		host: g.host, begin: begin, want: want,
		settled: func(t *testing.T, m api.Migration) { g.endedRight(t, m, state) },
	}
	if state == "running" {
		x.writer = g
	}
	return x
}

// endedRight claims that the migration is over and the guest at rest. If it
// runs, it writes again.
func (g *guest) endedRight(t *testing.T, m api.Migration, state string) {
	t.Helper()
	if got := g.state(t); got != state {
		t.Fatalf("the guest is %s, want %s", got, state)
	}
	g.noteMove(t, m)
	at := g.host.assertOnlyOneIsLeft(t, m)
	if got := g.volume(t, "vda").Location.Path; got != at.Path {
		t.Errorf("the migration is %s and the volume at %s", m.State, got)
	}
	if state == "running" {
		g.assertSettledAndGoOn(t)
		return
	}
	g.assertSettled(t)
}

// assertOnlyOneIsLeft: of a source that was to be deleted and a destination that
// the migration had made there is one, which it returns.
func (h *host) assertOnlyOneIsLeft(t *testing.T, m api.Migration) api.Location {
	t.Helper()
	left, gone := m.Dst, m.Src
	if m.State == api.MigrationCancelled {
		left, gone = gone, left
	}
	if exists(t, gone.Path) {
		t.Errorf("the migration is %s and there is still %s", m.State, gone.Path)
	}
	return left
}

func otherPool(v api.Volume) string {
	if v.Location.Pool == "a" {
		return "b"
	}
	return "a"
}

// elsewhere are the flags of a move to the pool where the disk is not.
func (g *guest) elsewhere(t *testing.T) []string {
	t.Helper()
	return []string{"--delete-source", "--to-pool", otherPool(g.volume(t, "vda"))}
}

func (g *guest) moveElsewhere(t *testing.T) []string {
	t.Helper()
	return append([]string{"volume", "migrate", g.volumeName("vda")}, g.elsewhere(t)...)
}

func (g *guest) copyThenComplete(t *testing.T) []string {
	t.Helper()
	v := g.start(t, "vda", g.elsewhere(t)...)
	g.writes(t)
	v.copy(t)
	return v.completeArgs()
}

func (g *guest) startThenCancel(t *testing.T) []string {
	t.Helper()
	v := g.start(t, "vda", g.elsewhere(t)...)
	g.writes(t)
	return v.cancelArgs()
}

// runThenStop lets a guest that is off write to the overlay of a migration.
func (g *guest) runThenStop(t *testing.T) *move {
	t.Helper()
	v := g.start(t, "vda", g.elsewhere(t)...)
	g.boot(t)
	g.powerOff(t)
	return v
}

func (g *guest) runThenComplete(t *testing.T) []string {
	t.Helper()
	v := g.runThenStop(t)
	v.copy(t)
	return v.completeArgs()
}

func (g *guest) runThenCancel(t *testing.T) []string {
	t.Helper()
	return g.runThenStop(t).cancelArgs()
}
