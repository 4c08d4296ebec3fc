// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
)

// The deaths in a move that keeps the base images of a linked clone. Its job writes in the
// background: until the pivot the overlay alone has all that the guest was told is done.

// guestOnClone is a guest that runs and writes to a linked clone; same claims that its base images
// are as they were.
func (h *host) guestOnClone(t *testing.T) (g *guest, same func()) {
	t.Helper()
	clone, bases := h.cloneIn(t, h.poolA, h.diskIn(t, h.poolB, api.FormatRaw))
	same = unchanged(t, bases)
	return h.runningGuest(t, clone), same
}

func crashClone(t *testing.T) (g *guest, same func()) {
	t.Helper()
	h, _, _ := sharedPools(t)
	return h.guestOnClone(t)
}

func (g *guest) moveOverItsBase(t *testing.T) []string {
	t.Helper()
	return append(g.moveElsewhere(t), "--keep-base")
}

func TestKillAtEveryStepOfAMoveThatKeepsTheBaseImages(t *testing.T) {
	crash.LeftToTestCrash(t)
	g, same := crashClone(t)
	x := g.trial(api.MigrationCompleted, "running", g.moveOverItsBase)
	ps := x.way(t)
	x.strikeAt(t, ps.of("migration_complete"), g.host.daemonDies(nothingElse))
	t.Run("libvirtd", func(t *testing.T) {
		x.strikeAt(t, ps.of("migration_complete").where(point.atStart), g.host.othersDie(g.host.others()["libvirtd"]))
	})
	g.assertSettled(t)
	same()
}

func TestKillOfTheGuestInTheSwitchOfAMoveThatKeepsTheBaseImages(t *testing.T) {
	crash.LeftToTestCrash(t)
	g, same := crashClone(t)
	begin := func(t *testing.T) []string {
		t.Helper()
		g.be(t, "running")
		return g.moveOverItsBase(t)
	}
	ps := g.trial(api.MigrationCompleted, "running", begin).way(t).of("migration_complete")
	x := g.trial(api.MigrationCompleted, "shut off", begin)
	t.Run("alone", func(t *testing.T) { x.strikeAt(t, ps.where(point.atStart), g.host.othersDie(g.crashes)) })
	t.Run("with the daemon", func(t *testing.T) { x.strikeAt(t, ps.where(point.inPause), g.host.daemonDies(g.killQEMU)) })
	g.assertSettled(t)
	same()
}
