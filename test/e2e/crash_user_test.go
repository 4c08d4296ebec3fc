// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
)

// What a user does in the middle of an op, at every step: it is refused, or counts, and nothing is
// lost by it.

func TestAStoppedGuestIsStartedAtEveryStepOfItsMove(t *testing.T) {
	crash.LeftToTestCrash(t)
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
	t.Logf("the guest was started at %d of %d steps", started, x.struck)
	if started < x.struck/2 {
		t.Error("it was refused at most of them")
	}
	g.assertSettled(t)
}

func TestACancelAtEveryStepOfTheStartOfAStoppedGuestEndsOnTheSource(t *testing.T) {
	crash.LeftToTestCrash(t)
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
	crash.LeftToTestCrash(t)
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
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	x := g.trial(api.MigrationCancelled, "running", g.startThenCancel)
	x.strikeAt(t, x.way(t).of("migration_cancel").where(point.atStart), g.host.othersDie(func(t *testing.T) {
		g.host.mustFail(t, "migration", "complete", g.volumeName("vda"))
	}))
	g.assertSettled(t)
}

// Another instance wants the volume while it is switched, or brought back.
func TestAnAttachElsewhereAtEveryStepOfACompleteAndACancelIsRefused(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	h := g.host
	other := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	before := other.persistentSlots(t)
	g.strikeIn(t, []string{"complete", "cancel"}, "running", point.atStart, h.othersDie(func(t *testing.T) {
		h.mustFail(t, "volume", "attach", g.volumeName("vda"), other.Name)
		if diff := cmp.Diff(before, other.persistentSlots(t)); diff != "" {
			t.Errorf("disks of the other instance (-before +after):\n%s", diff)
		}
	}))
	other.assertSettled(t)
	g.assertSettled(t)
}

// Somebody takes the source as a complete frees it, and would delete it the next moment. It is his
// from when the volume is at its destination, or gone.
func TestASourceThatIsTakenInTheMomentOfItsReleaseIsNotDeleted(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	const rounds = 6
	won := 0
	for i := range rounds {
		v := g.start(t, "vda", g.elsewhere(t)...)
		g.writes(t)
		v.copy(t)
		name := fmt.Sprintf("taken-%d", i)
		taken := make(chan bool, 1)
		go func() { taken <- v.isTaken(t, name) }()
		h.ctl(t, v.completeArgs()...)
		if <-taken {
			won++
			if sum := sumOf(t, v.Src.Path); sum != v.sum {
				t.Errorf("who has %s has not what was frozen there", v.Src.Path)
			}
			h.ctl(t, "volume", "delete", name, "--yes")
		} else if exists(t, v.Src.Path) {
			t.Errorf("%s was taken by nobody, and is there", v.Src.Path)
		}
		g.assertSettledAndGoOn(t)
	}
	t.Logf("it was taken in %d of %d rounds", won, rounds)
	g.assertSettled(t)
}

// isTaken makes the source of a move a volume of its own as soon as the registry gives it. It
// returns false if the source is deleted before.
func (v *move) isTaken(t *testing.T, name string) bool {
	for {
		_, err := v.g.host.Ctl(t.Context(), "-o", "json", "volume", "adopt", name, "--path", v.Src.Path, "--format", "raw", "--force")
		if err == nil {
			if moved, err := getAfter[api.Volume](t, v.g.host, "volume", "volume", "show", v.VolumeID); err != nil || moved.Location.Path != v.Dst.Path {
				t.Errorf("the source was given away with the volume at %s (%v)", moved.Location.Path, err)
			}
			return true
		}
		if codeOf(err) == api.CodeNotFound || t.Context().Err() != nil {
			return false
		}
	}
}
