// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
)

// The deaths in the middle of a mirror. There is no overlay that has the newest
// writes: until the switch the source has them all.

func TestKillAtEveryStepOfAMirror(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	x := g.trial(api.MigrationCompleted, "running", g.mirrorElsewhere)
	x.strikeAt(t, x.way(t).chosen(t), g.host.daemonDies(nothingElse))
	g.assertSettled(t)
}

func TestKillAtEveryStepOfACancelOfAMirror(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	x := g.trial(api.MigrationCancelled, "running", g.mirrorThenCancel)
	x.strikeAt(t, x.way(t).of("migration_cancel"), g.host.daemonDies(nothingElse))
	g.assertSettled(t)
}

func TestKillOfTheOthersInAMirror(t *testing.T) {
	crash.LeftToTestCrash(t)
	for _, other := range []string{"libvirtd", "registry"} {
		t.Run(other, func(t *testing.T) {
			g := crashGuest(t)
			x := g.trial(api.MigrationCompleted, "running", g.mirrorElsewhere)
			x.strikeAt(t, x.way(t).where(point.atStart), g.host.othersDie(g.host.others()[other]))
			g.assertSettled(t)
		})
	}
}

// The guest's process and the daemon die together, and the guest is started again
// before the daemon is. The mirror begins anew, or counts if the switch was past.
func TestKillOfTheGuestAndTheDaemonInAMirror(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	x := g.trial(api.MigrationCompleted, "running", g.mirrorElsewhere)
	ps := x.way(t).where(func(p point) bool { return p.inPause() || p.step() == "mirror" && p.atEffect() })
	x.writer = nil // it was off
	settled := x.settled
	x.settled = func(t *testing.T, m api.Migration) {
		g.seesItsDisks(t)
		settled(t, m)
	}
	x.strikeAt(t, ps, g.host.daemonDies(func(t *testing.T) {
		g.killQEMU(t)
		if err := g.WaitState(t.Context(), "shut off"); err != nil {
			t.Fatal(err)
		}
		if err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}))
	g.assertSettled(t)
}

// A guest that ends in the middle of its mirror and does not come back keeps its
// source.
func TestKillOfAGuestThatIsMirroredEndsItsMirror(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	before := g.volume(t, "vda")
	m := g.mirrorPartly(t, "--to-pool", "b")
	g.killQEMU(t)
	g.host.fails(t, api.ExitOpFailed, api.CodeStateForbidden, "migration", "watch", m.ID)
	m = get[api.Migration](t, g.host, "migration", "migration", "show", m.ID)
	if m.State != api.MigrationCancelled || exists(t, m.Dst.Path) || g.volume(t, "vda").Location != before.Location {
		t.Errorf("the migration ended as %+v", m)
	}
	g.assertSettled(t)
}

func (g *guest) mirrorElsewhere(t *testing.T) []string {
	t.Helper()
	return append(g.moveElsewhere(t), "--method", "mirror", "--verify", "full")
}

func (g *guest) mirrorThenCancel(t *testing.T) []string {
	t.Helper()
	m := g.mirrorPartly(t, "--verify", "full", "--to-pool", otherPool(g.volume(t, "vda")), "--delete-source")
	g.writes(t)
	return []string{"migration", "cancel", m.ID}
}
