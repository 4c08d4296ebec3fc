// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/op"
)

var errCancel = errors.New("cancelled by the operator")

func (s *stage) interrupt(id string) {
	s.t.Helper()
	if err := s.runner.Interrupt(id, errCancel); err != nil {
		s.t.Fatal(err)
	}
}

func TestInterruptCancelsTheStepWithItsCauseAndUndoes(t *testing.T) {
	bubble(t, func(s *stage) {
		var cause error
		s.commit.Do = func(ctx context.Context, _ *op.Run) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		}
		s.start()
		s.submit("a")
		synctest.Wait()
		s.interrupt("a")
		st := s.wait("a", op.StateUndone)
		if !errors.Is(cause, errCancel) || st.Failure.Message != errCancel.Error() {
			t.Errorf("cause %v, failure %+v", cause, st.Failure)
		}
		s.wantTrace("first", "undo commit", "undo first")
	})
}

func TestInterruptEndsAPause(t *testing.T) {
	for name, err := range map[string]error{
		"retry":   op.Retry(time.Hour, errBoom),
		"waiting": op.WaitFor("hypervisor", errBoom),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *stage) {
				s.first.Do = fails(err)
				s.start()
				begin := time.Now()
				s.submit("a")
				synctest.Wait()
				s.interrupt("a")
				st := s.wait("a", op.StateUndone)
				if time.Since(begin) != 0 || st.Failure.Message != errCancel.Error() {
					t.Errorf("after %v: %+v", time.Since(begin), st.Failure)
				}
			})
		})
	}
}

func TestAnInterruptedOpThatWasNotBegunTouchesNothing(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = untilCancelled
		s.start()
		s.submit("a", "x")
		s.submit("b", "x")
		synctest.Wait()
		s.interrupt("b")
		st := s.wait("b", op.StateUndone)
		if st.Failure.Message != errCancel.Error() {
			t.Errorf("failure is %+v", st.Failure)
		}
		if diff := cmp.Diff([]string{" finished"}, s.kinds("b")); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		s.wantTrace()
		if st := s.status("a"); st.State != op.StateRunning {
			t.Errorf("a is %s", st.State)
		}
	})
}

func TestWhatHappenedCountsMoreThanAnInterruption(t *testing.T) {
	bubble(t, func(s *stage) {
		s.commit.Do = untilCancelled
		s.commit.Observe = always(op.Done, nil)
		var lastErr error
		s.last.Do = func(ctx context.Context, _ *op.Run) error {
			lastErr = ctx.Err()
			return nil
		}
		s.start()
		s.submit("a")
		synctest.Wait()
		s.interrupt("a")
		s.wait("a", op.StateDone)
		if lastErr != nil {
			t.Errorf("a step behind the commit point got a context that is over: %v", lastErr)
		}
	})
}

func TestAnInterruptionWaitsUntilItIsKnownWhatHappened(t *testing.T) {
	bubble(t, func(s *stage) {
		back := false
		s.commit.Observe = func(context.Context, *op.Run) (op.Observation, error) {
			if back {
				return op.Done, nil
			}
			return op.NotDone, op.WaitFor("hypervisor", errBoom)
		}
		s.start()
		s.submit("a")
		synctest.Wait()
		s.interrupt("a")
		synctest.Wait()
		if st := s.status("a"); st.State != op.StateRunning || st.Waiting != "hypervisor" {
			t.Fatalf("a is %s, waiting for %q", st.State, st.Waiting)
		}
		back = true
		s.runner.Wake("hypervisor")
		s.wait("a", op.StateDone)
		s.wantTrace("first", "commit", "last")
	})
}

func TestAnInterruptionBetweenTwoStepsUndoes(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = func(context.Context, *op.Run) error {
			s.mark("first")
			s.interrupt("a")
			return nil
		}
		s.start()
		s.submit("a")
		st := s.wait("a", op.StateUndone)
		if st.Failure.Message != errCancel.Error() {
			t.Errorf("failure is %+v", st.Failure)
		}
		s.wantTrace("first", "undo commit", "undo first")
	})
}

// Both arrive in every order, even between the checks of each other. A stop alone is never a reason
// to undo.
func TestAnInterruptionAndAStopAtOnceLeaveOnlyTheInterruptionsReason(t *testing.T) {
	for range 3000 {
		bubble(t, func(s *stage) {
			s.commit.Do = untilCancelled
			s.start()
			s.submit("a")
			synctest.Wait()
			stopped := make(chan struct{})
			go func() { s.stop(); close(stopped) }()
			if err := s.runner.Interrupt("a", errCancel); err != nil && !errors.Is(err, op.ErrStopped) {
				t.Error(err)
			}
			<-stopped
			records, err := s.journal.Records(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				if r.Kind == op.EventFailed && !strings.Contains(string(r.Data), errCancel.Error()) {
					t.Fatalf("undone for %s", r.Data)
				}
			}
		})
	}
}

func TestInterruptSaysWhenItIsTooLate(t *testing.T) {
	bubble(t, func(s *stage) {
		s.last.Do = fails(op.WaitFor("registry", errBoom))
		s.start()
		s.submit("committed")
		synctest.Wait()
		if err := s.runner.Interrupt("committed", errCancel); !errors.Is(err, op.ErrCommitted) {
			t.Errorf("committed: got %v, want ErrCommitted", err)
		}
		if err := s.runner.Interrupt("none", errCancel); !errors.Is(err, op.ErrNotFound) {
			t.Errorf("absent: got %v, want ErrNotFound", err)
		}

		s.last.Do = fails(nil)
		s.first.Undo = fails(op.WaitFor("hypervisor", errBoom))
		s.start()
		s.wait("committed", op.StateDone)
		synctest.Wait()
		if err := s.runner.Interrupt("committed", errCancel); !errors.Is(err, op.ErrFinished) {
			t.Errorf("finished: got %v, want ErrFinished", err)
		}

		s.commit.Do = fails(errBoom)
		s.start()
		s.submit("undoing")
		synctest.Wait()
		if err := s.runner.Interrupt("undoing", errCancel); err != nil {
			t.Errorf("undoing: got %v, want nil", err)
		}
		if st := s.status("undoing"); st.State != op.StateUndoing || st.Failure.Message != "boom" {
			t.Errorf("the undoing op is %s, %+v", st.State, st.Failure)
		}

		s.first.Do = fails(op.UnknownOutcome(errBoom))
		s.start()
		s.submit("parked")
		s.wait("parked", op.StateNeedsOperator)
		if err := s.runner.Interrupt("parked", errCancel); !errors.Is(err, op.ErrParked) {
			t.Errorf("parked: got %v, want ErrParked", err)
		}
	})
}
