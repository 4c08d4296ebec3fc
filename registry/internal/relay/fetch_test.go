// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

func TestNewSessionIsGivenWhatTheOldOneDidNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		first, second, reading := s.begin(t.Context(), change("k1")), s.begin(t.Context(), change("k2")), s.begin(t.Context(), read())
		synctest.Wait()
		if got := s.fetch(t, hostA, "s1", 0); len(got) != 3 {
			t.Fatalf("tasks = %v", got)
		}
		s.reply(t, "k1", `1`)
		want(t, "the same session", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "")
		got := s.fetch(t, hostA, "s2", 0)
		if len(got) != 2 || !strings.Contains(strings.Join(got, " "), "k2") {
			t.Fatalf("another session is given %v", got)
		}
		for _, id := range got {
			s.reply(t, id, `2`)
		}
		want(t, "first", (<-first).String(), "200 1 after 0s")
		want(t, "second", (<-second).String(), "200 2 after 0s")
		want(t, "read", (<-reading).String(), "200 2 after 0s")
	})
}

func TestRegistryThatRestartsFindsItsTasks(t *testing.T) {
	for name, tc := range map[string]struct {
		fetched bool
		away    time.Duration // the host's poll, after the restart
		tasks   string
		states  string
	}{
		"not fetched, the host comes soon":  {false, 19 * time.Second, "k", "k taken"},
		"not fetched, the host comes late":  {false, 20 * time.Second, "", "k withdrawn"},
		"fetched, the host comes soon":      {true, 0, "k", "k taken"},
		"fetched, the host comes very late": {true, time.Hour, "k", "k taken"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				s.fetch(t, hostA, "s1", 0)
				ctx, cancel := context.WithCancel(t.Context())
				done := s.begin(ctx, change("k"))
				synctest.Wait()
				if tc.fetched {
					s.fetch(t, hostA, "s1", 0)
				}
				old := s.Relay
				cancel()
				if err := (<-done).err; !errors.Is(err, context.Canceled) {
					t.Errorf("a caller that goes away: error = %v", err)
				}
				old.Close()
				s.restart()
				pass(tc.away)
				want(t, "tasks", strings.Join(s.fetch(t, hostA, "s1", 0), " "), tc.tasks)
				want(t, "stored", s.tasks.states(), tc.states)
				if tc.tasks == "" {
					return
				}
				again := s.begin(t.Context(), change("k"))
				synctest.Wait()
				s.reply(t, "k", `1`)
				want(t, "the same key", (<-again).String(), "200 1 after 0s")
			})
		})
	}
}

func TestOlderPollIsGivenNothingWhenThereIsANewerOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		older := make(chan []string, 1)
		go func() { older <- s.fetch(t, hostA, "s1", time.Hour) }()
		synctest.Wait()
		newer := make(chan []string, 1)
		go func() { newer <- s.fetch(t, hostA, "s1", time.Hour) }()
		synctest.Wait()
		select {
		case got := <-older:
			want(t, "older poll", strings.Join(got, " "), "")
		default:
			t.Error("the older poll is still open")
		}
		s.begin(t.Context(), change("k"))
		want(t, "newer poll", strings.Join(<-newer, " "), "k")
	})
}

// A fenced host polls again, and gets its refusal.
func TestAPollThatIsEndedIsGivenNothingAndTheNextOneIsAsAnyOther(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.EndPoll(hostA) // it has none
		open := make(chan []string, 1)
		go func() { open <- s.fetch(t, hostA, "s1", time.Hour) }()
		synctest.Wait()
		s.EndPoll(hostB)
		synctest.Wait()
		if len(open) != 0 {
			t.Fatal("the poll of another host was ended")
		}
		s.EndPoll(hostA)
		synctest.Wait()
		if len(open) != 1 {
			t.Fatal("the poll is still open")
		}
		want(t, "the poll that was ended", strings.Join(<-open, " "), "")
		go func() { open <- s.fetch(t, hostA, "s1", time.Hour) }()
		synctest.Wait()
		s.begin(t.Context(), change("k"))
		want(t, "the next one", strings.Join(<-open, " "), "k")
	})
}

// The host was admitted just before it was fenced.
func TestAPollThatEntersBesideItsEndIsEnded(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		open := make(chan error, 1)
		go func() {
			_, err := s.Fetch(t.Context(), store.Call{}, hostA, "s1", time.Hour, func() error {
				s.EndPoll(hostA)
				return nil
			})
			open <- err
		}()
		synctest.Wait()
		if len(open) != 1 {
			t.Fatal("the poll is still open")
		}
		if err := <-open; err != nil {
			t.Error(err)
		}
	})
}

func TestTaskThatWasHandedToABrokenConnectionIsHandedOutAgain(t *testing.T) {
	t.Run("broken while it was taken", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *site) {
			s.fetch(t, hostA, "s1", 0)
			done := s.begin(t.Context(), change("k"))
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			s.tasks.afterTake = cancel
			if _, err := s.Fetch(ctx, store.Call{}, hostA, "s1", 0, admitted); !errors.Is(err, context.Canceled) {
				t.Errorf("fetch: error = %v", err)
			}
			want(t, "stored", s.tasks.states(), "k taken")
			want(t, "next poll", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "k")
			s.reply(t, "k", `1`)
			want(t, "answer", (<-done).body, "1")
		})
	})
	t.Run("broken while it was sent", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *site) {
			s.fetch(t, hostA, "s1", 0)
			s.begin(t.Context(), change("k"))
			synctest.Wait()
			s.fetch(t, hostA, "s1", 0)
			s.Lost(hostA)
			want(t, "next poll", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "k")
			want(t, "the one after", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "")
		})
	})
}

func TestTroubleOfTheStoreLosesNoTask(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		s.tasks.failNext()
		want(t, "a call that cannot be stored", (<-s.begin(t.Context(), change("k0"))).String(), "registry_unavailable maybe_done=false after 0s")

		done := s.begin(t.Context(), change("k"))
		synctest.Wait()
		for range 2 { // first to be taken, then to be found again
			s.tasks.failNext()
			if _, err := s.Fetch(t.Context(), store.Call{}, hostA, "s1", 0, admitted); api.CodeOf(err) != api.CodeRegistryUnavailable {
				t.Errorf("fetch: error = %v", err)
			}
		}
		want(t, "tasks", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "k")
		s.tasks.failNext()
		if err := s.Answer(t.Context(), store.Call{}, hostA, "k", api.TaskAnswer{Status: 200, Body: []byte(`1`)}); api.CodeOf(err) != api.CodeRegistryUnavailable {
			t.Errorf("answer: error = %v", err)
		}
		s.reply(t, "k", `1`)
		want(t, "answer", (<-done).body, "1")
	})
}

func TestWithdrawalThatIsNotStoredMayBeDone(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		done := s.begin(t.Context(), change("k"))
		synctest.Wait()
		s.tasks.failNext()
		want(t, "change", (<-done).String(), "hypervisor_unavailable maybe_done=true after 20s")
		want(t, "stored", s.tasks.states(), "k queued")
		want(t, "tasks of another session", strings.Join(s.fetch(t, hostA, "s2", 0), " "), "")
		want(t, "stored then", s.tasks.states(), "k withdrawn")
	})
}

func TestCloseEndsWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		done := s.begin(t.Context(), change("k"))
		synctest.Wait()
		s.Close()
		want(t, "change", (<-done).String(), "registry_unavailable maybe_done=true after 0s")
	})
}

// Whatever happens to callers, sessions and connections, the host gets a change at least once, and
// no caller of a change that the host got is told that nothing was done.
func TestStormOfCallersAndSessions(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		seen := map[string]bool{}
		var host sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		host.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				if round%7 == 3 {
					pass(21 * time.Second)
				}
				got, err := s.Fetch(ctx, store.Call{}, hostA, fmt.Sprint("s", round/5), 3*time.Second, admitted)
				if err != nil {
					continue
				}
				for i, task := range got {
					seen[task.ID] = true
					if (round+i)%4 != 0 {
						s.reply(t, task.ID, `1`)
					}
				}
			}
		})
		var callers sync.WaitGroup
		results := make([]result, 500)
		for i := range results {
			callers.Go(func() {
				pass(time.Duration(i) * 700 * time.Millisecond)
				results[i] = <-s.begin(t.Context(), change(fmt.Sprint("k", i)))
			})
		}
		callers.Wait()
		stop()
		host.Wait()
		answered, refused := 0, 0
		for i, r := range results {
			key := fmt.Sprint("k", i)
			switch e := api.AsError(r.err); {
			case e == nil:
				answered++
				if !seen[key] {
					t.Errorf("%s was answered and never fetched", key)
				}
			case e.Details["maybe_done"] != true:
				refused++
				if seen[key] {
					t.Errorf("%s was fetched, and its caller told that nothing was done: %v", key, r.err)
				}
			}
		}
		if answered == 0 || refused == 0 {
			t.Errorf("answered %d, refused %d: this test could not fail", answered, refused)
		}
	})
}

// The connection of an older poll may be found dead after its host has opened another.
func TestAPollBreaksOffOnlyWhereItsHostHasNotGoneOn(t *testing.T) {
	for name, tc := range map[string]struct {
		admit func(s *site, breakOff context.CancelFunc) error
		end   func(s *site, breakOff context.CancelFunc)
		broke string
	}{
		"its connection breaks": {end: func(_ *site, breakOff context.CancelFunc) { breakOff() }, broke: hostA},
		"it ends":               {end: func(*site, context.CancelFunc) { pass(time.Hour) }},
		"it is ended":           {end: func(s *site, _ context.CancelFunc) { s.EndPoll(hostA) }},
		"there is a newer one": {admit: func(s *site, breakOff context.CancelFunc) error {
			entered := make(chan struct{})
			go func() {
				_, _ = s.Fetch(context.Background(), store.Call{}, hostA, "s1", time.Hour, func() error { close(entered); return nil })
			}()
			<-entered
			breakOff()
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				ctx, breakOff := context.WithCancel(t.Context())
				defer breakOff()
				admit := admitted
				if tc.admit != nil {
					admit = func() error { return tc.admit(s, breakOff) }
				}
				go func() { _, _ = s.Fetch(ctx, store.Call{}, hostA, "s1", time.Hour, admit) }()
				synctest.Wait()
				if tc.end != nil {
					tc.end(s, breakOff)
				}
				synctest.Wait()
				want(t, "broken off", strings.Join(s.broke, " "), tc.broke)
				pass(time.Hour)
			})
		})
	}
}
