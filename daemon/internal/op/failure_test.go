// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/op"
)

func TestAPermanentErrorBeforeTheCommitPointUndoesBackwards(t *testing.T) {
	bubble(t, func(s *stage) {
		s.commit.Do = fails(errBoom)
		s.start()
		s.submit("a")
		st := s.wait("a", op.StateUndone)
		if st.Failure == nil || st.Failure.Message != "boom" {
			t.Errorf("failure is %+v", st.Failure)
		}
		s.wantTrace("first", "undo commit", "undo first")
		want := []string{
			"first started", "first succeeded", "commit started", "commit failed", "commit undo_started",
			"commit undone", "first undo_started", "first undone", " finished",
		}
		if diff := cmp.Diff(want, s.kinds("a")); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func TestAnErrorBehindTheCommitPointIsTriedAgainAndThenTheOperatorIsCalled(t *testing.T) {
	bubble(t, func(s *stage) {
		tries := 0
		s.last.Do = func(context.Context, *op.Run) error {
			if tries++; tries <= 4 {
				return errBoom
			}
			return nil
		}
		s.cfg.MaxTries = 4
		s.start()
		begin := time.Now()
		s.submit("a")
		s.wait("a", op.StateNeedsOperator)
		if tries != 4 {
			t.Errorf("%d tries, want 4", tries)
		}
		if got, want := time.Since(begin), 700*time.Millisecond; got != want {
			t.Errorf("spent %v, want %v: 100, 200 and 400 ms", got, want)
		}
		if err := s.runner.Continue(s.t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateDone)
		s.wantTrace("first", "commit")
	})
}

func TestRetryIsLimitedAndThenPermanent(t *testing.T) {
	bubble(t, func(s *stage) {
		tries := 0
		s.first.Do = func(context.Context, *op.Run) error {
			tries++
			return op.Retry(time.Minute, errBoom)
		}
		s.start()
		begin := time.Now()
		s.submit("a")
		s.wait("a", op.StateUndone)
		if tries != 20 || time.Since(begin) != 19*time.Minute {
			t.Errorf("%d tries in %v, want 20 in 19m", tries, time.Since(begin))
		}
	})
}

func TestARepeatedDoIsPrecededByALook(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = func(context.Context, *op.Run) error {
			s.mark("do")
			return op.Retry(time.Second, errBoom)
		}
		looks := 0
		s.first.Observe = func(context.Context, *op.Run) (op.Observation, error) {
			s.mark("look")
			// The effect happens by itself during the pause.
			if looks++; looks == 2 {
				return op.Done, nil
			}
			return op.NotDone, nil
		}
		s.start()
		s.submit("a")
		s.wait("a", op.StateDone)
		s.wantTrace("do", "look", "look", "commit", "last")
	})
}

// After a failed Do, and after a Do that another daemon may have made, only Observe knows the
// outcome.
func TestADoThatVerifiesIsNotObservedWhereItSucceeds(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		seen op.Observation
		ends op.State
		want []string
	}{
		"it succeeds":           {nil, op.NotDone, op.StateDone, []string{"do", "commit", "last"}},
		"it fails":              {errBoom, op.NotDone, op.StateUndone, []string{"do", "look", "undo first"}},
		"it fails and happened": {errBoom, op.Done, op.StateDone, []string{"do", "look", "commit", "last"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *stage) {
				s.first.Verifies = true
				s.first.Do = func(context.Context, *op.Run) error { s.mark("do"); return c.err }
				s.first.Observe = func(context.Context, *op.Run) (op.Observation, error) { s.mark("look"); return c.seen, nil }
				s.start()
				s.submit("a")
				s.wait("a", c.ends)
				s.wantTrace(c.want...)
			})
		})
	}
	bubble(t, func(s *stage) {
		s.first.Verifies = true
		s.first.Do = untilCancelled
		s.first.Observe = func(context.Context, *op.Run) (op.Observation, error) { s.mark("look"); return op.Done, nil }
		s.start()
		s.submit("a")
		synctest.Wait()
		s.start()
		s.wait("a", op.StateDone)
		s.wantTrace("look", "commit", "last")
	})
}

func TestWaitingHasNoLimitAndEndsAtOnceByWake(t *testing.T) {
	bubble(t, func(s *stage) {
		tries, back := 0, false
		s.first.Do = func(context.Context, *op.Run) error {
			if tries++; back {
				return nil
			}
			return op.WaitFor("hypervisor", errBoom)
		}
		s.start()
		begin := time.Now()
		s.submit("a")
		time.Sleep(time.Hour + time.Second) //nolint:forbidigo // fake time
		if st := s.status("a"); st.Waiting != "hypervisor" || st.State != op.StateRunning || tries != 721 {
			t.Errorf("%s, waiting for %q, %d tries; want 721, one each 5 s", st.State, st.Waiting, tries)
		} else if !st.WaitingSince.Equal(begin) {
			t.Errorf("it waits since %s, want %s: the tries in between are part of the wait", st.WaitingSince, begin)
		}
		back = true
		s.runner.Wake("registry")
		synctest.Wait()
		if tries != 721 {
			t.Error("woken by what it does not wait for")
		}
		s.runner.Wake("hypervisor")
		s.wait("a", op.StateDone)
		if got, want := time.Since(begin), time.Hour+time.Second; got != want {
			t.Errorf("done after %v, want %v", got, want)
		}
	})
}

// A wake during a try must end the wait after it: a guest may be paused.
func TestAWakeDuringATryIsNotWaitedFor(t *testing.T) {
	bubble(t, func(s *stage) {
		// backDuring returns a function that once reports the hypervisor away, after waking its
		// waiters.
		backDuring := func() func(context.Context, *op.Run) error {
			away := op.WaitFor("hypervisor", errBoom)
			return func(context.Context, *op.Run) error {
				err := away
				away = nil
				s.runner.Wake("hypervisor")
				return err
			}
		}
		s.first.Do, s.first.Undo = backDuring(), backDuring()
		s.commit.Do = fails(errBoom)
		s.start()
		begin := time.Now()
		s.submit("a")
		s.wait("a", op.StateUndone)
		if got := time.Since(begin); got != 0 {
			t.Errorf("spent %v, want no time", got)
		}
	})
}

func TestWhatObserveWaitedForIsNotWaitedForAgain(t *testing.T) {
	for name, c := range map[string]struct {
		wake bool
		want time.Duration
	}{
		"and it woke":                {true, time.Second},
		"and it was found at a poll": {false, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) { backWhileObserved(t, c.wake, c.want) })
	}
}

// backWhileObserved makes the hypervisor return after a second. Until then Do fails and Observe
// waits.
func backWhileObserved(t *testing.T, wake bool, want time.Duration) {
	t.Helper()
	bubble(t, func(s *stage) {
		back, happened := false, false
		s.first.Do = func(context.Context, *op.Run) error {
			if happened = back; back {
				return nil
			}
			return op.WaitFor("hypervisor", errBoom)
		}
		s.first.Observe = func(context.Context, *op.Run) (op.Observation, error) {
			switch {
			case happened:
				return op.Done, nil
			case back:
				return op.NotDone, nil
			}
			return op.Unknown, op.WaitFor("hypervisor", errBoom)
		}
		s.start()
		begin := time.Now()
		s.submit("a")
		synctest.Wait()
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		back = true
		if wake {
			s.runner.Wake("hypervisor")
		}
		s.wait("a", op.StateDone)
		if got := time.Since(begin); got != want {
			t.Errorf("done after %v, want %v", got, want)
		}
	})
}

func TestAnErrorOfDoDoesNotCountIfItHappened(t *testing.T) {
	bubble(t, func(s *stage) {
		s.commit.Do = fails(errBoom)
		s.commit.Observe = always(op.Done, nil)
		s.start()
		s.submit("a")
		s.wait("a", op.StateDone)
	})
}

func TestASuccessThatDidNotHappenIsAFailure(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Observe = always(op.NotDone, nil)
		s.start()
		s.submit("a")
		st := s.wait("a", op.StateUndone)
		if want := "step first reports success but it did not happen"; st.Failure.Message != want {
			t.Errorf("got %q, want %q", st.Failure.Message, want)
		}
	})
}

func TestWhatNobodyKnowsIsNeverUndone(t *testing.T) {
	unknown := op.UnknownOutcome(errBoom)
	for name, change := range map[string]func(*op.Step){
		"Observe says unknown":         func(s *op.Step) { s.Observe = always(op.Unknown, nil) },
		"Observe cannot look":          func(s *op.Step) { s.Observe = always(op.NotDone, errBoom) },
		"Observe asks for too long":    func(s *op.Step) { s.Observe = always(op.NotDone, op.Retry(0, errBoom)) },
		"Observe has unknown outcome":  func(s *op.Step) { s.Observe = always(op.NotDone, unknown) },
		"Do has unknown outcome":       func(s *op.Step) { s.Do = fails(unknown) },
		"Do fails and Observe as well": func(s *op.Step) { s.Do, s.Observe = fails(errBoom), always(op.Unknown, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *stage) {
				s.cfg.MaxTries = 3
				change(&s.first)
				s.first.Undo = func(context.Context, *op.Run) error { t.Error("undone"); return nil }
				s.start()
				s.submit("a")
				s.wait("a", op.StateNeedsOperator)
				want := []string{"first started", " needs_operator"}
				if diff := cmp.Diff(want, s.kinds("a")); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		})
	}
}

func TestAnUndoThatFailsCallsTheOperatorAndIsTriedAgainOnHisWord(t *testing.T) {
	bubble(t, func(s *stage) {
		tries, cured := 0, false
		s.commit.Do = fails(errBoom)
		s.first.Undo = func(context.Context, *op.Run) error {
			if tries++; cured {
				return nil
			}
			return errors.New("stuck")
		}
		s.start()
		s.submit("a")
		st := s.wait("a", op.StateNeedsOperator)
		if want := "undo step first: stuck"; st.Failure.Message != want || tries != 5 {
			t.Errorf("failure %q after %d tries", st.Failure.Message, tries)
		}
		cured = true
		s.start()
		if err := s.runner.Continue(s.t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		st = s.wait("a", op.StateUndone)
		if st.Failure.Message != "boom" {
			t.Errorf("the failure of the op became %q", st.Failure.Message)
		}
	})
}

func TestAnUndoWaitsAndRetriesByType(t *testing.T) {
	bubble(t, func(s *stage) {
		answers := []error{op.WaitFor("hypervisor", errBoom), op.Retry(time.Minute, errBoom), errBoom, nil}
		s.first.Do = fails(errBoom)
		s.first.Undo = func(context.Context, *op.Run) error {
			err := answers[0]
			answers = answers[1:]
			return err
		}
		s.start()
		begin := time.Now()
		s.submit("a")
		s.wait("a", op.StateUndone)
		if got, want := time.Since(begin), 5*time.Second+time.Minute+100*time.Millisecond; got != want {
			t.Errorf("spent %v, want %v", got, want)
		}
	})
}

func TestContinueIsForParkedOpsOnly(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = untilCancelled
		s.start()
		s.submit("a")
		synctest.Wait()
		if err := s.runner.Continue(s.t.Context(), "a"); !errors.Is(err, op.ErrNotParked) {
			t.Errorf("running: got %v, want ErrNotParked", err)
		}
		if err := s.runner.Interrupt("a", errBoom); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateUndone)
		synctest.Wait()
		if err := s.runner.Continue(s.t.Context(), "a"); !errors.Is(err, op.ErrFinished) {
			t.Errorf("finished: got %v, want ErrFinished", err)
		}
		if err := s.runner.Continue(s.t.Context(), "b"); !errors.Is(err, op.ErrNotFound) {
			t.Errorf("absent: got %v, want ErrNotFound", err)
		}
	})
}
