// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

const (
	hostA = "10000000-0000-4000-8000-00000000000a"
	hostB = "10000000-0000-4000-8000-00000000000b"
)

// site is a relay over its tasks with the clock of the bubble.
type site struct {
	*relay.Relay
	tasks *tasks
	// broke has the hosts with a broken poll.
	broke []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{tasks: newTasks()}
	s.restart()
	t.Cleanup(func() { s.Close() })
	return s
}

// restart restarts the registry: only the tasks survive.
func (s *site) restart() {
	s.Relay = relay.New(relay.Config{
		Tasks: s.tasks, Hosts: knownHosts{}, Trail: s.tasks, Log: slog.New(slog.DiscardHandler), OnBreak: func(hostID string) { s.broke = append(s.broke, hostID) },
	})
}

// bubble runs f with a site in a bubble.
func bubble(t *testing.T, f func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newSite(t)) })
}

// change returns a call of host a that changes something.
func change(key string) relay.Request {
	return relay.Request{HostID: hostA, HostName: "a", Who: "root", Method: "POST", Path: "/v1/volumes/v/migrate", Body: []byte(`{}`), Change: true, Key: key}
}

func read() relay.Request {
	return relay.Request{HostID: hostA, HostName: "a", Who: "root", Method: "GET", Path: "/v1/volumes/v/which"}
}

type result struct {
	status int
	body   string
	err    error
	after  time.Duration
}

func (r result) String() string {
	if r.err != nil {
		e := api.AsError(r.err)
		return fmt.Sprintf("%s maybe_done=%v after %s", e.Code, e.Details["maybe_done"] == true, r.after)
	}
	return fmt.Sprintf("%d %s after %s", r.status, r.body, r.after)
}

func (s *site) begin(ctx context.Context, req relay.Request) <-chan result {
	done := make(chan result, 1)
	begin := time.Now()
	go func() {
		status, body, err := s.Do(ctx, req)
		done <- result{status, string(body), err, time.Since(begin)}
	}()
	return done
}

func admitted() error { return nil }

// fetch polls once for a host and returns the ids of its tasks.
func (s *site) fetch(t *testing.T, host, session string, wait time.Duration) []string {
	t.Helper()
	got, err := s.Fetch(t.Context(), store.Call{}, host, session, wait, admitted)
	if err != nil {
		t.Errorf("fetch: %v", err)
	}
	ids := []string{}
	for _, task := range got {
		ids = append(ids, task.ID)
	}
	return ids
}

func (s *site) reply(t *testing.T, task, body string) {
	t.Helper()
	if err := s.Answer(t.Context(), store.Call{}, hostA, task, api.TaskAnswer{Status: 200, Body: []byte(body)}); err != nil {
		t.Errorf("answer: %v", err)
	}
}

// pass advances the fake time.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // fake time
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func TestCallIsAnsweredByItsHost(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		done := s.begin(t.Context(), change("k1"))
		want(t, "tasks of a", strings.Join(s.fetch(t, hostA, "s1", time.Minute), " "), "k1")
		want(t, "stored", s.tasks.states(), "k1 taken")
		pass(3 * time.Second)
		s.reply(t, "k1", `{"op":1}`)
		want(t, "answer", (<-done).String(), `200 {"op":1} after 3s`)
		want(t, "the same key", (<-s.begin(t.Context(), change("k1"))).String(), `200 {"op":1} after 0s`)
		want(t, "tasks afterwards", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "")
	})
}

func TestOpenPollIsWokenByATask(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		done := make(chan []string, 1)
		begin := time.Now()
		go func() { done <- s.fetch(t, hostA, "s1", time.Minute) }()
		pass(10 * time.Second)
		s.begin(t.Context(), read())
		if got := <-done; len(got) != 1 || time.Since(begin) != 10*time.Second {
			t.Errorf("poll ended with %v after %s", got, time.Since(begin))
		}
	})
}

func TestPollWithoutTasksEndsInTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		begin := time.Now()
		if got := s.fetch(t, hostA, "s1", 25*time.Second); len(got) != 0 || got == nil || time.Since(begin) != 25*time.Second {
			t.Errorf("poll ended with %v after %s", got, time.Since(begin))
		}
	})
}

func TestHostThatIsNotThereIsToldAtOnceAndNothingIsStored(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, s *site){
		"never polled": func(*testing.T, *site) {},
		"polled 30 s ago": func(t *testing.T, s *site) {
			s.fetch(t, hostA, "s1", 0)
			pass(relay.DefaultAbsence)
		},
		"another host polls": func(t *testing.T, s *site) { s.fetch(t, hostB, "s1", 0) },
		"the registry was restarted": func(t *testing.T, s *site) {
			s.fetch(t, hostA, "s1", 0)
			s.restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				prepare(t, s)
				for what, req := range map[string]relay.Request{"change": change("k"), "read": read()} {
					want(t, what, (<-s.begin(t.Context(), req)).String(), "hypervisor_unavailable maybe_done=false after 0s")
				}
				want(t, "stored", s.tasks.states(), "")
			})
		})
	}
}

func TestHostIsThereWhileAPollIsOpenAndAWhileAfter(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		go s.fetch(t, hostA, "s1", 10*time.Minute)
		pass(9 * time.Minute)
		want(t, "with an open poll", fmt.Sprint(s.Present(hostA)), "true")
		pass(time.Minute + relay.DefaultAbsence - 1)
		want(t, "just before the absence", fmt.Sprint(s.Present(hostA)), "true")
		pass(time.Nanosecond)
		want(t, "after it", fmt.Sprint(s.Present(hostA)), "false")
	})
}

func TestTaskThatNobodyFetchesIsWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		changed, reading := s.begin(t.Context(), change("k")), s.begin(t.Context(), read())
		want(t, "change", (<-changed).String(), "hypervisor_unavailable maybe_done=false after 20s")
		want(t, "read", (<-reading).String(), "hypervisor_unavailable maybe_done=false after 20s")
		want(t, "stored", s.tasks.states(), "k withdrawn")
		want(t, "tasks", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "")
		want(t, "tasks of another session", strings.Join(s.fetch(t, hostA, "s2", 0), " "), "")

		again := s.begin(t.Context(), change("k"))
		want(t, "tasks after the same key again", strings.Join(s.fetch(t, hostA, "s2", time.Second), " "), "k")
		s.reply(t, "k", `1`)
		want(t, "then", (<-again).String(), "200 1 after 0s")
	})
}

func TestTaskThatIsFetchedAndNotAnsweredMayBeDone(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		done := s.begin(t.Context(), change("k"))
		pass(15 * time.Second)
		s.fetch(t, hostA, "s1", 0)
		want(t, "change", (<-done).String(), "hypervisor_unavailable maybe_done=true after 20s")
		want(t, "stored", s.tasks.states(), "k taken")

		want(t, "tasks of the same session", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "")
		again := s.begin(t.Context(), change("k"))
		pass(time.Second)
		want(t, "tasks when the caller asks again", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "k")
		s.reply(t, "k", `1`)
		want(t, "the same key", (<-again).String(), "200 1 after 1s")
	})
}

func TestReadThatIsFetchedAndNotAnsweredIsNoMaybe(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		done := s.begin(t.Context(), read())
		pass(time.Second)
		id := s.fetch(t, hostA, "s1", 0)
		want(t, "read", (<-done).String(), "hypervisor_unavailable maybe_done=false after 20s")
		s.reply(t, id[0], `1`)
		want(t, "stored", s.tasks.states(), "")
	})
}

func TestCallerThatGoesAwayTakesNoChangeWithIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		ctx, cancel := context.WithCancel(t.Context())
		changed, reading := s.begin(ctx, change("k")), s.begin(ctx, read())
		synctest.Wait()
		cancel()
		<-changed
		<-reading
		want(t, "tasks", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "k")
		s.reply(t, "k", `1`)
		want(t, "the same key", (<-s.begin(t.Context(), change("k"))).String(), "200 1 after 0s")
	})
}

func TestOneAnswerWins(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		var waiting []<-chan result
		for range 10 {
			waiting = append(waiting, s.begin(t.Context(), change("k")))
		}
		synctest.Wait()
		want(t, "tasks", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "k")
		var answers sync.WaitGroup
		for i := range 10 {
			answers.Go(func() { s.reply(t, "k", fmt.Sprint(i)) })
		}
		answers.Wait()
		first := (<-waiting[0]).body
		for _, w := range waiting[1:] {
			want(t, "another caller", (<-w).body, first)
		}
		want(t, "later", (<-s.begin(t.Context(), change("k"))).body, first)
	})
}

func TestAnotherRequestUnderTheSameKeyIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		first := s.begin(t.Context(), change("k"))
		synctest.Wait()
		for _, other := range []func(*relay.Request){
			func(r *relay.Request) { r.Method = "DELETE" },
			func(r *relay.Request) { r.Path += "x" },
			func(r *relay.Request) { r.Body = []byte(`{"to_pool":"x"}`) },
		} {
			req := change("k")
			other(&req)
			want(t, "another request", (<-s.begin(t.Context(), req)).String(), "idempotency_mismatch maybe_done=false after 0s")
		}
		s.fetch(t, hostA, "s1", 0)
		s.reply(t, "k", `1`)
		want(t, "the first", (<-first).String(), "200 1 after 0s")
	})
}

func TestSameKeyStaysAtTheHostThatItWasMeantFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		s.fetch(t, hostB, "s1", 0)
		first := s.begin(t.Context(), change("k"))
		synctest.Wait()
		moved := change("k")
		moved.HostID, moved.HostName = hostB, "b"
		second := s.begin(t.Context(), moved)
		synctest.Wait()
		want(t, "tasks of b", strings.Join(s.fetch(t, hostB, "s1", 0), " "), "")
		want(t, "tasks of a", strings.Join(s.fetch(t, hostA, "s1", 0), " "), "k")
		s.reply(t, "k", `1`)
		want(t, "first", (<-first).body, "1")
		want(t, "second", (<-second).body, "1")
	})
}

func TestHostAnswersNoTaskOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		changed, reading := s.begin(t.Context(), change("k")), s.begin(t.Context(), read())
		synctest.Wait()
		want(t, "tasks of b", strings.Join(s.fetch(t, hostB, "s1", 0), " "), "")
		for _, id := range s.fetch(t, hostA, "s1", 0) {
			if err := s.Answer(t.Context(), store.Call{}, hostB, id, api.TaskAnswer{Status: 200, Body: []byte(`666`)}); api.CodeOf(err) != api.CodeNotYourHost {
				t.Errorf("b answers %s: error = %v", id, err)
			}
			s.reply(t, id, `1`)
		}
		want(t, "change", (<-changed).body, "1")
		want(t, "read", (<-reading).body, "1")
	})
}

// A registry that has just started does not know any present host yet.
func TestAHostThatIsNotThereIsSaidToBeSoSinceWhenItIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		refused := func(want string) {
			t.Helper()
			if _, _, err := s.Do(t.Context(), read()); api.CodeOf(err) != api.CodeHypervisorUnavailable || !strings.Contains(err.Error(), want) {
				t.Errorf("refused with %v, want %q", err, want)
			}
		}
		pass(3 * time.Second)
		refused("since the registry started, 3s ago")
		s.fetch(t, hostA, "one", 0)
		pass(time.Minute)
		refused("asked for work last 1m0s ago")
	})
}
