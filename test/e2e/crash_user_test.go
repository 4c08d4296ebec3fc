// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

// What a user does in the middle of an op, at every step: it is refused, or counts, and nothing is
// lost by it.

func TestAStoppedGuestIsStartedAtEveryStepOfItsMove(t *testing.T) {
	leftToTestCrash(t)
	g := crashGuest(t)
	started := 0
	x := moveOfAStoppedGuest.trialThatStarts(g)
	ps := x.way(t).where(point.atStart)
	x.strikeAt(t, ps, g.host.othersDie(func(t *testing.T) {
		if _, err := g.host.Libvirtd.Virsh(t.Context(), "start", g.Name); err != nil {
			t.Logf("refused: %v", err)
			return
		}
		started++
	}))
	t.Logf("the guest was started at %d of %d steps", started, len(ps))
	if started < len(ps)/2 {
		t.Error("it was refused at most of them")
	}
	g.assertSettled(t)
}

func TestACancelAtEveryStepOfTheStartOfAStoppedGuestEndsOnTheSource(t *testing.T) {
	leftToTestCrash(t)
	g := crashGuest(t)
	g.powerOff(t)
	ps := g.trial(api.MigrationCompleted, "shut off", g.moveElsewhere).way(t).of("migration_start").where(point.atStart)
	x := g.trial(api.MigrationCancelled, "shut off", g.moveElsewhere)
	x.strikeAt(t, ps, g.host.othersDie(func(t *testing.T) { g.host.ctl(t, "migration", "cancel", g.volumeName("vda")) }))
	g.assertSettled(t)
}

// A guest that somebody resumes in the pause of a switch writes to the chain that it is about to
// leave. The daemon stands still meanwhile, as on a busy host.
func TestAGuestThatSomebodyResumesInItsPauseLosesNothing(t *testing.T) {
	leftToTestCrash(t)
	g := crashGuest(t)
	resumed := 0
	g.strikeIn(t, []string{"complete", "cancel"}, "running", point.inPause, g.host.othersDie(func(t *testing.T) {
		pid := g.host.DaemonPID()
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Kill(pid, unix.SIGCONT) }()
		if g.state(t) != "paused" {
			return // the daemon was faster
		}
		g.host.virsh(t, "resume", g.Name)
		g.writes(t)
		resumed++
	}))
	t.Logf("it was resumed %d times", resumed)
	if resumed == 0 {
		t.Error("the daemon was always faster")
	}
	g.assertSettled(t)
}

func TestACompleteAtEveryStepOfACancelIsRefused(t *testing.T) {
	leftToTestCrash(t)
	g := crashGuest(t)
	x := g.trial(api.MigrationCancelled, "running", g.startThenCancel)
	x.strikeAt(t, x.way(t).of("migration_cancel").where(point.atStart), g.host.othersDie(func(t *testing.T) {
		g.host.mustFail(t, "migration", "complete", g.volumeName("vda"))
	}))
	g.assertSettled(t)
}
