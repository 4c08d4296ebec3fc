// SPDX-License-Identifier: Apache-2.0

package sharedmove_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
)

// wantOneLeft requires that one guest of a move was not restored with the others, that only
// discarding its memory frees it, and that the move then ends.
func (s *site) wantOneLeft(id, name string, end api.MigrationState) {
	s.T.Helper()
	relaytest.Pass(5 * time.Minute)
	for _, retry := range []func() error{
		func() error { _, err := s.Store.Pauses.Complete(s.T.Context(), store.Call{}, id); return err },
		func() error { return s.cancel(id) },
	} {
		if err := retry(); err == nil {
			s.T.Error("what is left was tried again")
		}
	}
	relaytest.Pass(time.Minute)
	for host := range s.hosts {
		for guest, g := range s.guestsOf(host) {
			if g.running != (guest != guestID(name)) {
				s.T.Errorf("guest %s is %+v", guest, g)
			}
		}
	}
	s.follow(id)
	if m := s.until(id); m.State != end {
		s.T.Errorf("migration = %+v", m)
	}
	for _, i := range expect.Value(s.Store.Instances.All(s.T.Context(), store.Viewer{}))(s.T) {
		if g := s.guestsOf(i.Host)[i.ID]; i.Locked || g.memory || g.running != (i.Name != name) {
			s.T.Errorf("at the end guest %s is %+v, and instance %+v", i.Name, g, i)
		}
	}
}

func TestAGuestThatCannotBeRestoredIsNeverRestoredAfterTheOthersHaveRunOn(t *testing.T) {
	for name, before := range map[string]func(*site){
		"at dst": failing("restore", undone, undone, undone),
		"at src": both(failing("copy-saved", refused), failing("restore", undone, undone, undone)),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *site) {
				before(s)
				id := s.move()
				s.wantOneLeft(id, "g1", map[string]api.MigrationState{"at dst": api.MigrationCompleted, "at src": api.MigrationCancelled}[name])
			})
		})
	}
}

// The only guest that could be restored was resumed, and its host then stops for an operator. Its
// memory is newest, and is not discarded with the memory of the others.
func TestAGuestThatAloneHasRunOnIsNotGivenUpWithTheOthers(t *testing.T) {
	bubble(t, func(s *site) {
		s.hosts["a"].fails("restore", "", undone, undone, undone)
		s.hosts["a"].fails("resume", halted)
		s.hosts["b"].fails("restore", undone, undone, undone)
		id := s.move()
		s.untilPhase(id, "resuming")
		relaytest.Pass(time.Minute)
		s.follow(id)
		if m := s.until(id); m.State != api.MigrationCompleted {
			t.Errorf("migration = %+v", m)
		}
		calls := append(s.hosts["a"].calls(id), s.hosts["b"].calls(id)...)
		given := []string{}
		for _, c := range calls {
			if what, is := strings.CutPrefix(c, "discard."); is {
				given = append(given, strings.SplitN(what, ".", 2)[0])
			}
		}
		slices.Sort(given)
		if want := []string{guestID("g2"), guestID("g3")}; !slices.Equal(given, want) {
			t.Errorf("the memory of %q was given up, want %q: %q", given, want, calls)
		}
		if g := s.guestsOf("a")[guestID("g1")]; !g.running || g.memory {
			t.Errorf("the guest that ran on is %+v", g)
		}
	})
}

func TestAGuestWhoseHostIsRebootedWhileTheOthersRunOnIsNotRestored(t *testing.T) {
	bubble(t, func(s *site) {
		id := s.move()
		s.hosts["b"].late = map[string]time.Duration{"resume": 5 * time.Second}
		s.untilPhase(id, "resuming")
		s.hosts["b"].reboot()
		s.wantOneLeft(id, "g3", api.MigrationCompleted)
	})
}

func TestAGuestWhoseHostIsRebootedBeforeAnyRunsOnIsRestoredWithTheOthers(t *testing.T) {
	for _, phase := range []string{"copying", "restoring"} {
		t.Run(phase, func(t *testing.T) {
			bubble(t, func(s *site) {
				id := s.move()
				s.untilPhase(id, phase)
				relaytest.Pass(time.Second)
				s.hosts["b"].reboot()
				if m := s.until(id); m.State != api.MigrationCompleted {
					t.Errorf("migration = %+v", m)
				}
				s.wantWhole(id)
			})
		})
	}
}

// The registry or a host is away while the guests are resumed: a guest that is much later than the
// others is not resumed with its old memory.
func TestAGuestThatIsHeldUpLongerThanTheOthersDoesNotRunOn(t *testing.T) {
	bubble(t, func(s *site) {
		id := s.move()
		s.hosts["b"].lost = "resume"
		s.untilPhase(id, "resuming")
		s.hosts["b"].Away()
		relaytest.Pass(5 * time.Minute)
		s.hosts["b"].Start()
		s.wantOneLeft(id, "g3", api.MigrationCompleted)
	})
}

// g3 is saved when the registry finds that another program has resumed g1: the memory of g3 is
// older than that.
func TestAGuestThatSomebodyLetsRunOnKeepsTheOthersFromBeingRestored(t *testing.T) {
	bubble(t, func(s *site) {
		s.hosts["a"].fails("save", "", resumed)
		id := s.move()
		s.untilPhase(id, "saving")
		relaytest.Pass(time.Minute)
		for _, name := range []string{"a", "b"} {
			for guest, g := range s.guestsOf(name) {
				if g.running != (guest == guestID("g2")) {
					s.T.Errorf("guest %s is %+v", guest, g)
				}
			}
		}
		s.follow(id)
		if m := s.until(id); m.State != api.MigrationCancelled {
			t.Errorf("migration = %+v", m)
		}
	})
}

// Another program resumes g2 while g1 is saved: the saved memory of g1 is older.
func TestAGuestThatIsSavedWhileAnotherOneRunsOnByHandIsNotRestored(t *testing.T) {
	bubble(t, func(s *site) {
		s.hosts["a"].fails("save", overtaken)
		id := s.move()
		s.untilPhase(id, "saving")
		relaytest.Pass(time.Minute)
		if a := s.guestsOf("a"); a[guestID("g1")].process || !a[guestID("g2")].running {
			s.T.Errorf("guests g1 and g2 are %+v and %+v", a[guestID("g1")], a[guestID("g2")])
		}
		s.follow(id)
		if m := s.until(id); m.State != api.MigrationCancelled {
			t.Errorf("migration = %+v", m)
		}
	})
}

func (s *site) report(host string) {
	s.T.Helper()
	d := s.hosts[host]
	in := api.HostReport{ID: d.ID, Name: host, Epoch: 1}
	for id, g := range s.guestsOf(host) {
		state := api.InstancePaused
		if g.running {
			state = api.InstanceRunning
		}
		in.Instances = append(in.Instances, api.InstanceReport{ID: id, State: state})
	}
	expect.Value(s.Store.Reports.Receive(s.T.Context(), store.Call{}, in))(s.T)
}

// g1 and g2 are restored and paused, and wait for the host of g3.
func TestAGuestThatIsResumedByHandWhileAnotherIsWaitedForBarsTheMemoryOfTheOthers(t *testing.T) {
	bubble(t, func(s *site) {
		id := s.move()
		s.untilPhase(id, "restoring")
		s.hosts["b"].Away()
		relaytest.Pass(time.Minute)
		s.report("a")
		s.mu.Lock()
		g1 := s.hosts["a"].guests[guestID("g1")]
		g1.running, g1.since = true, time.Now()
		s.mu.Unlock()
		s.report("a")
		s.hosts["b"].Start()
		relaytest.Pass(5 * time.Minute)
		for _, host := range []string{"a", "b"} {
			for guest, g := range s.guestsOf(host) {
				if g.running != (guest == guestID("g1")) || guest == guestID("g3") && g.process {
					t.Errorf("guest %s is %+v", guest, g)
				}
			}
		}
		s.follow(id)
		if m := s.until(id); m.State != api.MigrationCompleted {
			t.Errorf("migration = %+v", m)
		}
	})
}

func TestGuestsThatAreSuspendedAndHaveToWaitForOneAreLetGo(t *testing.T) {
	bubble(t, func(s *site) {
		s.hosts["b"].late = map[string]time.Duration{"suspend": 20 * time.Second}
		id := s.move()
		s.untilPhase(id, "suspending")
		began := time.Now()
		for s.anyStands("a") || time.Since(began) < 6*time.Second {
			if time.Since(began) > 25*time.Second {
				t.Fatal("the guests of host a stand still")
			}
			relaytest.Pass(time.Second)
		}
		if m := s.until(id); m.State != api.MigrationCancelled || m.Error == nil || m.Error.Code != api.CodeInstanceBusy {
			t.Errorf("migration = %+v", m)
		}
		s.wantWhole(id)
	})
}

func (s *site) anyStands(host string) bool {
	for _, g := range s.guestsOf(host) {
		if !g.running {
			return true
		}
	}
	return false
}
