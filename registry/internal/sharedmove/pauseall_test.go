// SPDX-License-Identifier: Apache-2.0

package sharedmove_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
)

func TestTheVolumeIsMovedWhileEveryGuestIsSaved(t *testing.T) {
	bubble(t, func(s *site) {
		id := s.move()
		if m := s.until(id); m.State != api.MigrationCompleted || m.Error != nil {
			t.Errorf("migration = %+v", m)
		}
		s.wantWhole(id)
		g1, g2, g3 := guestID("g1"), guestID("g2"), guestID("g3")
		// The instances of a host are suspended and resumed at once, and saved and restored one
		// after the other.
		got := s.hosts["a"].calls(id)
		for _, pair := range [][2]int{{0, 2}, {7, 9}} {
			if len(got) >= pair[1] {
				slices.Sort(got[pair[0]:pair[1]])
			}
		}
		if diff := cmp.Diff([]string{
			"suspend." + g1, "suspend." + g2, "save." + g1, "save." + g2, "copy", "restore." + g1, "restore." + g2, "resume." + g1, "resume." + g2, "delete",
		}, got); diff != "" {
			t.Errorf("calls of host a (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"suspend." + g3, "save." + g3, "restore." + g3, "resume." + g3}, s.hosts["b"].calls(id)); diff != "" {
			t.Errorf("calls of host b (-want +got):\n%s", diff)
		}
	})
}

// plots are the possible courses of a move, with their events and ends.
var plots = map[string]struct {
	before func(s *site)
	during func(s *site, id string) // called every second
	end    api.MigrationState
	code   api.Code // of the migration's error
	deadly bool     // the registry is killed at every moment of it
}{
	"as wished":               {end: api.MigrationCompleted, deadly: true},
	"suspend busy":            {before: failing("suspend", busy), end: api.MigrationCompleted},
	"suspend refused":         {before: failing("suspend", "", refused), end: api.MigrationCancelled, code: api.CodeNoSpace},
	"suspend undone":          {before: failing("suspend", "", undone), end: api.MigrationCancelled, code: api.CodeNoSpace, deadly: true},
	"suspend halted":          {before: failing("suspend", "", halted), end: api.MigrationCancelled, code: api.CodeNeedsOperator},
	"suspend doubted":         {before: failing("suspend", doubted), end: api.MigrationCompleted},
	"suspend crashed":         {before: failing("suspend", "", crashed), end: api.MigrationCancelled, code: api.CodeInternal},
	"save busy":               {before: failing("save", busy, busy), end: api.MigrationCompleted},
	"save always busy":        {before: failing("save", busy, busy, busy, busy, busy), end: api.MigrationCancelled, code: api.CodeInstanceBusy},
	"save refused":            {before: failing("save", "", refused), end: api.MigrationCancelled, code: api.CodeNoSpace},
	"save doubted":            {before: failing("save", doubted), end: api.MigrationCompleted},
	"save doubted, barred":    {before: failing("save", doubted, barred), end: api.MigrationCancelled, code: api.CodeStateForbidden},
	"save doubted, undone":    {before: failing("save", doubted, undone), end: api.MigrationCancelled, code: api.CodeNoSpace},
	"save crashed":            {before: failing("save", "", crashed), end: api.MigrationCancelled, code: api.CodeInternal},
	"save undone":             {before: failing("save", "", undone), end: api.MigrationCancelled, code: api.CodeNoSpace, deadly: true},
	"save halted":             {before: failing("save", "", halted), end: api.MigrationCancelled, code: api.CodeNeedsOperator},
	"copy busy":               {before: failing("copy-saved", busy, busy), end: api.MigrationCompleted},
	"copy refused":            {before: failing("copy-saved", refused), end: api.MigrationCancelled, code: api.CodeNoSpace},
	"copy undone":             {before: failing("copy-saved", undone), end: api.MigrationCancelled, code: api.CodeNoSpace, deadly: true},
	"copy halted":             {before: failing("copy-saved", halted), end: api.MigrationCancelled, code: api.CodeNeedsOperator},
	"wake busy":               {before: failing("restore", busy, busy, busy, busy, busy, busy), end: api.MigrationCompleted},
	"wake undone":             {before: failing("restore", undone, undone), end: api.MigrationCompleted, deadly: true},
	"wake halted":             {before: failing("restore", halted), end: api.MigrationCompleted},
	"resume busy":             {before: failing("resume", busy, busy, busy), end: api.MigrationCompleted},
	"resume halted":           {before: failing("resume", halted), during: tryAgain, end: api.MigrationCompleted, deadly: true},
	"cancel while suspending": {during: cancelWhen("suspending"), end: api.MigrationCancelled, deadly: true},
	"wake back refused":       {before: both(failing("copy-saved", refused), failing("restore", refused)), end: api.MigrationCancelled, code: api.CodeNoSpace},
	"cancel while saving":     {during: cancelWhen("saving"), end: api.MigrationCancelled, deadly: true},
	"cancel while copying":    {during: cancelWhen("copying"), end: api.MigrationCancelled, deadly: true},
	"cancel while restoring":  {during: cancelWhen("restoring"), end: api.MigrationCompleted},
	"drop busy":               {before: failing("drop-saved", busy), end: api.MigrationCompleted},
	"drop of dst fails":       {before: both(failing("copy-saved", halted), failing("drop-saved", undone)), during: tryAgain, end: api.MigrationCancelled, code: api.CodeNeedsOperator},
}

func failing(verb string, how ...string) func(*site) {
	return func(s *site) { s.hosts["a"].fails(verb, how...) }
}

func both(a, b func(*site)) func(*site) {
	return func(s *site) { a(s); b(s) }
}

// tryAgain executes the operator's commands if the move needs an operator.
func tryAgain(s *site, id string) {
	if !strings.HasPrefix(s.state(id), "needs_operator") {
		return
	}
	s.follow(id)
}

func cancelWhen(phase string) func(s *site, id string) {
	return func(s *site, id string) {
		m := expect.Value(s.Store.Migrations.Get(s.T.Context(), id, store.Viewer{}))(s.T)
		if m.Phase != phase {
			return
		}
		want := api.Code("")
		if phase == "restoring" {
			want = api.CodePastPointOfNoReturn
		}
		if err := s.cancel(id); api.CodeOf(err) != want {
			s.T.Errorf("cancel while %s: %v", phase, err)
		}
	}
}

// play moves the volume with a plot, calls also every second, and checks the end.
func play(s *site, plot string, also func()) {
	p := plots[plot]
	if p.before != nil {
		p.before(s)
	}
	id := s.move()
	for range 600 {
		m := expect.Value(s.Store.Migrations.Get(s.T.Context(), id, store.Viewer{}))(s.T)
		if m.State.Final() {
			code := api.Code("")
			if m.Error != nil {
				code = m.Error.Code
			}
			if m.State != p.end || code != p.code {
				s.T.Errorf("%s: ended as %s %s, want %s %s", plot, m.State, code, p.end, p.code)
			}
			s.wantWhole(id)
			return
		}
		relaytest.Pass(time.Second)
		if p.during != nil {
			p.during(s, id)
		}
		also()
	}
	s.T.Fatalf("%s: not over after ten minutes: %s", plot, s.state(id))
}

func TestHoweverAMoveGoesNothingIsLeftAtItsEnd(t *testing.T) {
	for plot := range plots {
		t.Run(plot, func(t *testing.T) {
			bubble(t, func(s *site) { play(s, plot, func() {}) })
		})
	}
}

// The loop is killed with the whole registry before and after each of its changes and calls.
func TestDeathOfTheRegistryAtAnyMomentChangesNothing(t *testing.T) {
	for plot, p := range plots {
		if !p.deadly || testing.Short() && plot != "cancel while copying" { // for the race detector
			continue
		}
		t.Run(plot, func(t *testing.T) {
			stride := 1
			if testing.Short() { // for the race detector
				stride = 13
			}
			died := true
			for n := 1; died; n += stride {
				for _, after := range []bool{false, true} {
					bubble(t, func(s *site) {
						s.Stop()
						m := &relaytest.Mortal{N: n, After: after}
						s.mortal = m
						s.begin()
						play(s, plot, s.restartDead)
						died = m.IsDead()
					})
					if t.Failed() {
						t.Fatalf("killed at %d, after: %v", n, after)
					}
				}
			}
		})
	}
}

// diesWithATask makes the daemon take its next task and die before it answers.
func (d *daemon) diesWithATask() {
	d.Away()
	d.site.mu.Lock()
	d.journal.Mute = 1
	d.site.mu.Unlock()
	d.Start()
}

// Suspended guests do not wait for a dead daemon: see
// TestGuestsThatAreSuspendedAndHaveToWaitForOneAreLetGo.
func TestDaemonsThatDieWithATaskAreAskedForTheSame(t *testing.T) {
	for n := range 8 {
		if testing.Short() && n%4 != 0 { // for the race detector
			continue
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(s *site) {
				id := s.move()
				s.untilPhase(id, "saving")
				for second := range 600 {
					if s.state(id) == string(api.MigrationCompleted) {
						break
					}
					if second%8 == n {
						s.hosts["a"].diesWithATask()
					}
					relaytest.Pass(time.Second)
				}
				if got := s.state(id); got != string(api.MigrationCompleted) {
					t.Errorf("state = %s", got)
				}
				s.wantWhole(id)
			})
		})
	}
}

func TestAHostThatIsAwayIsWaitedForWithEveryGuestSaved(t *testing.T) {
	bubble(t, func(s *site) {
		id := s.move()
		s.untilPhase(id, "saving")
		s.hosts["b"].Away()
		relaytest.Pass(10 * time.Minute)
		if got := s.state(id); got != "starting" {
			t.Errorf("state = %s", got)
		}
		s.hosts["b"].Start()
		if m := s.until(id); m.State != api.MigrationCompleted {
			t.Errorf("migration = %+v", m)
		}
		s.wantWhole(id)
	})
}

// A save that its host has not fetched is withdrawn; the host may return after the end.
func TestASaveThatWasNotFetchedIsNotMadeAfterTheCancel(t *testing.T) {
	bubble(t, func(s *site) {
		s.hosts["b"].Away()
		id := s.move()
		relaytest.Pass(5 * time.Second)
		expect.OK(t, s.cancel(id))
		if m := s.until(id); m.State != api.MigrationCancelled {
			t.Errorf("migration = %+v", m)
		}
		s.hosts["b"].Start()
		relaytest.Pass(time.Minute)
		s.wantWhole(id)
		if calls := s.hosts["b"].calls(id); len(calls) != 0 {
			t.Errorf("calls of host b = %q", calls)
		}
	})
}

// The guest is restored only after the result of a fetched save is known.
func TestASaveThatWasFetchedIsKnownBeforeTheGuestIsWoken(t *testing.T) {
	for verb, want := range map[string][]string{"suspend": {"suspend"}, "save": {"suspend", "save", "back", "resume"}} {
		t.Run(verb, func(t *testing.T) {
			bubble(t, func(s *site) {
				b := s.hosts["b"]
				b.lost = verb
				id := s.move()
				s.untilPhase(id, map[string]string{"suspend": "suspending", "save": "saving"}[verb])
				relaytest.Pass(time.Second)
				b.Away()
				expect.OK(t, s.cancel(id))
				relaytest.Pass(5 * time.Minute)
				if got := s.state(id); got != "cancelling" {
					t.Errorf("state = %s", got)
				}
				b.late = map[string]time.Duration{verb: time.Minute}
				b.Start()
				s.until(id)
				relaytest.Pass(5 * time.Minute)
				s.wantWhole(id)
				for i := range want {
					want[i] += "." + guestID("g3")
				}
				if calls := b.calls(id); !slices.Equal(calls, want) {
					t.Errorf("calls of host b = %q", calls)
				}
			})
		})
	}
}

func TestAFencedHostBeforeTheFlipLeadsBackWithoutIt(t *testing.T) {
	for _, phase := range []string{"checking", "suspending", "saving", "copying"} {
		for _, name := range []string{"a", "b"} {
			t.Run(name+" "+phase, func(t *testing.T) {
				bubble(t, func(s *site) {
					for _, d := range s.hosts { // otherwise the checks may end between two looks
						d.late = map[string]time.Duration{"check-save": 3 * time.Second, "check-copy": 3 * time.Second}
					}
					id := s.move()
					s.untilPhase(id, phase)
					relaytest.Pass(time.Second)
					s.fence(name)
					m := s.until(id)
					if m.State != api.MigrationCancelled || m.Error == nil || m.Error.Code != api.CodeHypervisorUnavailable {
						t.Errorf("migration = %+v", m)
					}
					s.wantAwakeBut(name, "/old/v")
					s.rejoin(name)
					s.wantLostUntilTheWord(name, id)
				})
			})
		}
	}
}

func TestAFencedHostAfterTheFlipIsNotWaitedFor(t *testing.T) {
	for _, end := range []string{"it comes back", "its attachment is deleted"} {
		t.Run(end, func(t *testing.T) {
			bubble(t, func(s *site) {
				s.hosts["b"].fails("restore", busy, busy, busy, busy, busy)
				id := s.move()
				s.untilPhase(id, "restoring")
				s.fence("b")
				m := s.until(id)
				if m.State != api.MigrationCompleted {
					t.Errorf("migration = %+v", m)
				}
				s.wantAwakeBut("b", m.Dst.Path)
				if end == "it comes back" {
					relaytest.Pass(time.Hour)
					s.rejoin("b")
					s.wantLostUntilTheWord("b", id)
					return
				}
				expect.Value(s.Store.Attachments.ForceDelete(s.T.Context(), store.Call{}, attachmentID("g3")))(t)
				relaytest.Pass(5 * time.Second)
				if i := expect.Value(s.Store.Instances.Get(s.T.Context(), "g3", store.Viewer{}))(t); i.Locked {
					t.Errorf("instance = %+v", i)
				}
			})
		})
	}
}

// wantLostUntilTheWord requires that the guests of a fenced host that has returned do not run.
// Guests with memory stay saved, with a reason, until an operator discards the memory; then they
// are off and unlocked.
func (s *site) wantLostUntilTheWord(name, id string) {
	s.T.Helper()
	relaytest.Pass(2 * time.Minute)
	withMemory := 0
	for id, g := range s.guestsOf(name) {
		i := expect.Value(s.Store.Instances.Get(s.T.Context(), id, store.Viewer{}))(s.T)
		if g.memory {
			withMemory++
		}
		if g.running || g.process || i.Locked != g.memory {
			s.T.Errorf("lost guest %s is %+v, and instance %+v", i.Name, g, i)
		}
		if i.Locked && !strings.Contains(i.LockReason, "--discard-memory") {
			s.T.Errorf("the lock says %q", i.LockReason)
		}
	}
	if _, err := s.Store.Pauses.Discard(s.T.Context(), store.Call{}, id); (err == nil) != (withMemory > 0) {
		s.T.Errorf("%d guests have memory to give up: %v", withMemory, err)
	}
	relaytest.Pass(time.Minute)
	for id, g := range s.guestsOf(name) {
		if i := expect.Value(s.Store.Instances.Get(s.T.Context(), id, store.Viewer{}))(s.T); g.running || g.memory || i.Locked {
			s.T.Errorf("once its memory is given up guest %s is %+v, and instance %+v", i.Name, g, i)
		}
	}
}

func (s *site) guestsOf(name string) map[string]guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]guest{}
	for id, g := range s.hosts[name].guests {
		out[id] = *g
	}
	return out
}

// wantAwakeBut requires that all guests run at a location, except one host's, and that only those
// are locked.
func (s *site) wantAwakeBut(name, at string) {
	s.T.Helper()
	for _, i := range expect.Value(s.Store.Instances.All(s.T.Context(), store.Viewer{}))(s.T) {
		s.mu.Lock()
		g := *s.hosts[i.Host].guests[i.ID]
		s.mu.Unlock()
		if i.Host != name && (i.Locked || !g.running || g.memory || g.at != at) {
			s.T.Errorf("instance %s = %+v, guest %+v, want it on %s", i.Name, i, g, at)
		}
		if i.Host == name && g.memory && !i.Locked {
			s.T.Errorf("instance %s is saved on its fenced host and not locked", i.Name)
		}
	}
}

// rejoin makes a fenced host return.
func (s *site) rejoin(name string) {
	s.T.Helper()
	epoch := expect.Value(s.Store.Hosts.Get(s.T.Context(), name))(s.T).Epoch
	expect.Value(s.Store.Hosts.Rejoin(s.T.Context(), store.Call{}, name, api.HostRejoin{Epoch: epoch}))(s.T)
	s.hosts[name].Start()
}
