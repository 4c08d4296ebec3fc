// SPDX-License-Identifier: Apache-2.0

package livewalk_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/seedtest"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
)

// troubles are the remaining numbers of failures in a walk.
type troubles struct{ daemon, qemu, registry, cancel int }

// tick makes steps in random order: writes of guests, halves of swaps, steps of ops. A step wakes
// the loops if it calls the registry; the next step waits for them.
func (s *site) tick(steps int) {
	for range steps {
		s.step()
		synctest.Wait()
	}
}

func (s *site) step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.hosts[string(hostsOf[s.random.IntN(len(hostsOf))])]
	g := d.guests[s.random.IntN(len(d.guests))]
	ops := d.running()
	switch n := s.random.IntN(10); {
	case n < 3 && g.runs():
		s.write(g)
	case n < 4:
		g.swapped()
	case len(ops) > 0:
		d.goOn(ops[s.random.IntN(len(ops))])
	}
}

// goWrong may cause a failure.
func (s *site) goWrong(id string, left *troubles) {
	d := s.hosts[string(hostsOf[s.random.IntN(len(hostsOf))])]
	switch n := s.random.IntN(60); {
	case n == 0 && left.daemon > 0:
		left.daemon--
		d.restart(s.random.IntN(2))
	case n == 1 && left.qemu > 0:
		left.qemu--
		s.mu.Lock()
		defer s.mu.Unlock()
		if g := d.guests[s.random.IntN(len(d.guests))]; g.process != 0 {
			g.dies()
			if !g.guarded() {
				s.begin(g)
			}
		}
	case n == 2 && left.registry > 0:
		left.registry--
		s.restart()
	case n == 3 && left.cancel > 0 && s.random.IntN(4) == 0:
		left.cancel--
		_, err := s.Store.Pauses.Cancel(s.T.Context(), store.Call{}, id, nil)
		over := api.CodeOf(err) == api.CodeNoMigration && s.migration(id).State.Final()
		if err != nil && !over && api.CodeOf(err) != api.CodePastPointOfNoReturn {
			s.T.Errorf("cancel: %v", err)
		}
	}
}

// follow executes the registry's advice for a move that needs an operator: discard the memory of a
// guest that was resumed too late, or ask a host again that could not remove bitmaps. No other case
// may need an operator.
func (s *site) follow(m api.Migration) {
	s.T.Helper()
	again, _ := m.Cures()
	late := m.Error != nil && m.Error.Code == api.CodeStateForbidden && m.Phase == "resuming"
	if !late && (m.Error == nil || !strings.Contains(m.Error.Message, stillThere.Message)) {
		s.T.Fatalf("it needs an operator in phase %s: %v", m.Phase, m.Error)
	}
	s.followed = append(s.followed, again)
	for _, line := range strings.Split(again, api.CureSeparator) {
		if strings.HasPrefix(line, "volferryctl instance start ") { // once the move is over
			continue
		}
		err := s.Type(line)
		if err != nil && api.CodeOf(err) != api.CodeStateForbidden { // the move has advanced since
			s.T.Errorf("%s: %v", line, err)
		}
	}
}

// trackedAgain names the phase tracking of a later generation. The phase again before it is shown
// as resuming.
const trackedAgain = "tracking again"

// walk moves the volume to the end with random events, calls also at every step, and returns the
// migration and the phases that it had.
func (s *site) walk(left troubles, also func()) (api.Migration, map[string]bool) {
	s.T.Helper()
	id := s.move()
	phases := map[string]bool{}
	for range 20000 {
		m := s.migration(id)
		if m.Phase == "tracking" && phases["copying"] {
			phases[trackedAgain] = true
		}
		phases[m.Phase] = true
		if m.State.Final() {
			s.wantWhole(id)
			return m, phases
		}
		if m.State == api.MigrationNeedsOperator {
			s.follow(m)
		}
		relaytest.Pass(time.Duration(1+s.random.IntN(900)) * time.Millisecond)
		s.tick(s.random.IntN(12))
		s.goWrong(id, &left)
		also()
		if len(s.broken) > 0 {
			s.T.Fatalf("in phase %s: %s", m.Phase, s.broken[0])
		}
	}
	s.T.Fatalf("not over: %+v", s.migration(id))
	return api.Migration{}, nil
}

func someTroubles(seed uint64) troubles {
	return troubles{daemon: 3, qemu: 2, registry: 2, cancel: int(seed % 2)}
}

// Each walk has a random order of actions of guests, hosts and loops. R1, R3, R4 and R6 are checked
// in the hosts' calls, R5 and all others by the content of dst at the end.
func TestHoweverAMoveGoesEveryWriteIsThereAtItsEnd(t *testing.T) {
	const enough = 60 // walks to see each way to the end
	walks := enough
	if testing.Short() {
		walks = 6
	}
	ends, seen := map[api.MigrationState]int{}, map[string]int{}
	walks = seedtest.Every(t, walks, func(t *testing.T, seed uint64) {
		bubble(t, seed, func(s *site) {
			m, phases := s.walk(someTroubles(seed), func() {})
			ends[m.State]++
			for phase := range phases {
				seen[phase]++
			}
		})
	})
	t.Logf("ends %v, phases %v", ends, seen)
	if walks >= enough && (ends[api.MigrationCompleted] == 0 || ends[api.MigrationCancelled] == 0 || seen[trackedAgain] == 0) {
		t.Errorf("the walks end as %v, by %v: they do not show much", ends, seen)
	}
}

// The order of a loop's look and the end of a call at the same moment is not determined by the
// seed, so such a walk may continue in two ways.
func TestOneSeedIsOneWalk(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 1
	}
	seedtest.SameTwice(t, seeds, func(t *testing.T, seed uint64) (_ []uint64, happened []string) {
		bubble(t, seed, func(s *site) {
			s.walk(someTroubles(seed), func() {})
			happened = s.happened
		})
		slices.Sort(happened) // hosts are called at the same moment in any order
		return nil, happened
	})
}

// A host cannot remove its bitmaps, at dst and at src.
func TestTheCommandOfAHostThatCannotClearAwayEndsTheMove(t *testing.T) {
	for cancel, want := range map[int]string{0: "volferryctl migration complete ", 1: "volferryctl migration cancel "} {
		t.Run(want, func(t *testing.T) {
			bubble(t, 3, func(s *site) {
				s.hosts["b"].stuck = 1
				if cancel > 0 {
					s.hosts["a"].full = true
				}
				m, _ := s.walk(troubles{}, func() {})
				if len(s.followed) != 1 || s.followed[0] != want+m.ID {
					t.Errorf("the operator was told %q, want %s%s", s.followed, want, m.ID)
				}
				if end := (map[int]api.MigrationState{0: api.MigrationCompleted, 1: api.MigrationCancelled})[cancel]; m.State != end {
					t.Errorf("it ended as %s, want %s", m.State, end)
				}
			})
		})
	}
}

// The registry is killed before and after each change and call of the loops.
func TestDeathOfTheRegistryAtAnyMomentLosesNothing(t *testing.T) {
	stride := 1
	if testing.Short() {
		stride = 29
	}
	for died, n := true, 1; died; n += stride {
		for _, after := range []bool{false, true} {
			bubble(t, 7, func(s *site) {
				s.Stop()
				m := &relaytest.Mortal{N: n, After: after}
				s.mortal = m
				s.start()
				end, _ := s.walk(troubles{}, func() {
					if s.mortal != nil && m.IsDead() {
						s.restart()
					}
				})
				if end.State != api.MigrationCompleted {
					t.Errorf("it ended as %s: %v", end.State, end.Error)
				}
				died = m.IsDead()
			})
			if t.Failed() {
				t.Fatalf("killed at %d, after: %v", n, after)
			}
		}
	}
}
