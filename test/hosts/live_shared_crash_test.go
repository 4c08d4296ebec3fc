// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// The deaths of live_shared_kill_test.go in every step of a move: those for which make test-crash
// has time.

var deadlyMoments = []deadly{
	{phase: "the bitmaps are made", point: "live_track.track.after_do", pass: 1, running: true},
	{phase: "the first copy", point: "live_round.copy_round.after_started", pass: 1, slow: true, running: true},
	{phase: "the suspension", point: "instance_suspend.suspend.after_do", pass: 1, running: true},
	{phase: "the last read", point: "live_last_read.read_last.after_do", pass: 1, running: true},
	{phase: "the last copy", point: "live_last.copy_last.after_started", pass: 1},
	{phase: "the save", point: "instance_save.save.after_started", pass: 1, running: true},
	{phase: "the saved", point: "instance_save.save.after_do", pass: 1},
	{phase: "the clearing", point: "live_untrack.end.after_do", pass: 1, after: true},
	{phase: "the definition", point: "instance_restore_paused.name.after_do", pass: 1, after: true},
	{phase: "the restore", point: "instance_restore_paused.wake.after_started", pass: 1, after: true},
	{phase: "the restored", point: "instance_restore_paused.wake.after_do", pass: 1, after: true, running: true},
	{phase: "the resume", point: "instance_resume.resume.after_started", pass: 1, after: true, running: true},
}

// roundMoments are those of moves whose guests write so much that there are rounds.
var roundMoments = []deadly{
	{phase: "a swap", point: "live_swap.swap.after_do", pass: 1, running: true},
	{phase: "a round", point: "live_round.copy_round.after_started", pass: 2, slow: true, running: true},
}

// fromOutside is a daemon that does not end itself: it is in the middle of something.
func fromOutside(k killable) killable {
	k.itself, k.kill = false, func(t *testing.T, s *sharedLive, h *site.Host) { s.restart(t, h) }
	return k
}

// at is the killable as it dies at the moment.
func (k killable) at(m deadly) killable {
	if m.slow && k.itself {
		return fromOutside(k)
	}
	return k
}

// bothInTurn stands for the host of the pair whose turn it is.
const bothInTurn = -1

// strikeLive has a killable die at each of the moments, on each of the hosts.
func strikeLive(t *testing.T, hosts []int, k killable, moments ...deadly) {
	t.Helper()
	s := startSharedLive(t, "hv1", "hv2")
	type place struct {
		deadly
		on *site.Host
	}
	var places []place
	for i, m := range moments {
		for _, n := range hosts {
			if n == bothInTurn {
				n = i % len(s.Hosts)
			}
			places = append(places, place{m, s.Hosts[n]})
		}
	}
	crash.InTime(t, places, func(p place) bool {
		if !t.Run(p.phase+" on "+p.on.Name, func(t *testing.T) { s.struck(t, p.on, p.deadly, k.at(p.deadly)) }) {
			t.Fatal("nothing would be certain after this")
		}
		return true
	})
}

func TestKillOfADaemonInAMoveWhileAllGuestsWrite(t *testing.T) {
	crash.LeftToTestCrash(t)
	crash.LeftToAnotherSeed(t)
	strikeLive(t, []int{0, 1}, aDaemon, deadlyMoments...)
}

func TestKillOfLibvirtdInAMoveWhileAllGuestsWrite(t *testing.T) {
	crash.LeftToTestCrash(t)
	crash.LeftToAnotherSeed(t)
	strikeLive(t, []int{bothInTurn}, aLibvirtd, deadlyMoments...)
}

func TestKillOfTheRegistryInAMoveWhileAllGuestsWrite(t *testing.T) {
	crash.LeftToTestCrash(t)
	crash.LeftToAnotherSeed(t)
	strikeLive(t, []int{bothInTurn}, aRegistry, deadlyMoments...)
}

func TestKillOfAGuestInAMoveWhileAllGuestsWrite(t *testing.T) {
	crash.LeftToTestCrash(t)
	crash.LeftToAnotherSeed(t)
	strikeLive(t, []int{bothInTurn}, aGuest, slices.DeleteFunc(slices.Clone(deadlyMoments), func(m deadly) bool { return !m.running })...)
}

// The registry dies with each change of such a move stored and nobody knowing of it yet, and with
// the one that decides not stored yet.
func TestKillOfTheRegistryAsItDecidesInAMoveWhileAllGuestsWrite(t *testing.T) {
	crash.LeftToTestCrash(t)
	crash.LeftToAnotherSeed(t)
	s := startSharedLive(t, "hv1", "hv2")
	crash.InTime(t, s.decisions(t), func(point string) bool {
		if !t.Run(point, func(t *testing.T) { s.registryDiesAt(t, point) }) {
			t.Fatal("nothing would be certain after this")
		}
		return true
	})
}

// decided is the change with which the registry decides for the destination.
const decided = "migration.phase.restoring"

// decisions moves the volume once, and returns the points of the registry on the way: each change
// that it has stored and nobody knows of yet, and before the one that decides.
func (s *sharedLive) decisions(t *testing.T) []string {
	t.Helper()
	log := filepath.Join(s.Registry.Dir, "points")
	s.restartRegistry(t, "VOLFERRY_FAULT_LOG="+log)
	ctl(t, s.Registry.Caller(), "migration", "watch", s.move(t, anyPause...))
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for line := range strings.Lines(string(text)) {
		point := strings.TrimSpace(line)
		decides := strings.HasSuffix(point, ".after_commit") || strings.HasPrefix(point, decided)
		if strings.HasPrefix(point, "migration.") && decides && !slices.Contains(points, point) {
			points = append(points, point)
		}
	}
	t.Logf("points of the registry: %q", points)
	if !slices.Contains(points, decided+".before_commit") || !slices.Contains(points, decided+".after_commit") {
		t.Fatal("the decision is not among them")
	}
	return points
}

// restartRegistry puts another registry in the place of this one, with these variables in its
// environment. It returns when all hosts have reported to it and ask it for tasks.
func (s *sharedLive) restartRegistry(t *testing.T, env ...string) {
	t.Helper()
	s.Registry.Kill()
	if err := s.Registry.Start(t.Context(), env...); err != nil {
		t.Fatal(err)
	}
	for _, h := range s.Hosts {
		s.hears(t, h)
	}
}

// registryDiesAt moves the volume under a registry that ends itself at the point, and is started
// again.
func (s *sharedLive) registryDiesAt(t *testing.T, point string) {
	t.Helper()
	s.restartRegistry(t, "VOLFERRY_FAULT="+point+"=kill")
	id := s.movedByADyingRegistry(t)
	s.settled(t, id, strings.HasPrefix(point, "migration.phase.suspending"))
}

// movedByADyingRegistry begins a move, and returns its id when the registry has ended itself and
// was started again. It may end itself before it has answered: volferryctl asks again then.
func (s *sharedLive) movedByADyingRegistry(t *testing.T) (id string) {
	t.Helper()
	timed, stop := context.WithTimeout(t.Context(), wayTimeout)
	defer stop()
	revived := make(chan error, 1)
	go func() {
		if err := s.Registry.Died(timed); err != nil {
			revived <- fmt.Errorf("the way does not lead past the point: %w", err)
			return
		}
		revived <- s.Registry.Start(t.Context())
	}()
	id = s.move(t, anyPause...)
	if err := <-revived; err != nil {
		t.Fatal(err)
	}
	return id
}

// heavy is a writer that makes each round worth another one.
var heavy = lab.Load{Depth: 4}

// The rounds of a move are tried on hosts of their own: how long a pause takes there is not known
// yet, so that it may be wanted shorter than it is.
func TestKillInTheRoundsOfAMoveWhileAllGuestsWrite(t *testing.T) {
	crash.LeftToTestCrash(t)
	crash.LeftToAnotherSeed(t)
	type place struct {
		deadly
		killable
		on int
	}
	var places []place
	for i, k := range []killable{aDaemon, aLibvirtd, aRegistry, aGuest} {
		k.then = func(t *testing.T, s *sharedLive) { s.pace(t, light) }
		for _, m := range roundMoments {
			places = append(places, place{m, k.at(m), i % 2})
		}
	}
	crash.InTime(t, places, func(p place) bool {
		return t.Run(p.name+" dies in "+p.phase, func(t *testing.T) {
			s := startSharedLive(t, "hv1", "hv2")
			s.pace(t, heavy)
			s.struck(t, s.Hosts[p.on], p.deadly, p.killable, "--max-pause", "5s", "--bandwidth", "4MiB/s")
		})
	})
}
