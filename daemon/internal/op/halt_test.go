// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/op"
)

func TestAHaltedRunnerDoesNothingAndResumeGoesOn(t *testing.T) {
	bubble(t, func(s *stage) {
		halted := true
		s.commit.Do = func(ctx context.Context, r *op.Run) error {
			if halted {
				return untilCancelled(ctx, r)
			}
			s.mark("commit")
			return nil
		}
		s.commit.Observe = nil
		s.start()
		s.submit("a", "x")
		s.submit("b", "x")
		synctest.Wait()
		before := s.kinds("a")
		waited := make(chan error)
		go func() {
			_, err := s.runner.Wait(context.WithoutCancel(s.t.Context()), "a")
			waited <- err
		}()
		synctest.Wait()
		s.runner.Halt()
		s.runner.Halt() // again is no harm
		if err := <-waited; !errors.Is(err, op.ErrStopped) {
			t.Errorf("wait: got %v, want ErrStopped", err)
		}
		if diff := cmp.Diff(before, s.kinds("a")); diff != "" {
			t.Errorf("records of the halt (-before +after)\n%s", diff)
		}
		if n := len(s.runner.Active()); n != 0 {
			t.Errorf("%d ops are active", n)
		}
		if err := s.runner.Submit(s.t.Context(), op.Op{ID: "c", Kind: "k"}); !errors.Is(err, op.ErrStopped) {
			t.Errorf("submit: got %v, want ErrStopped", err)
		}
		halted = false
		if err := s.runner.Resume(s.t.Context()); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateDone)
		s.wait("b", op.StateDone)
		s.wantTrace("first", "commit", "last", "first", "commit", "last")
	})
}

func TestADroppedOpIsOverAndUndoesNothing(t *testing.T) {
	bubble(t, func(s *stage) {
		s.commit.Do = untilCancelled
		s.start()
		s.submit("a", "x")
		synctest.Wait()
		s.runner.Halt()
		why := op.Failure{Code: "stale_epoch", Message: "the volume is another host's now"}
		for range 2 { // the second time there is nothing left to drop
			if err := s.runner.Drop(t.Context(), "a", why); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.runner.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := s.wait("a", op.StateUndone)
		if diff := cmp.Diff(&why, st.Failure); diff != "" {
			t.Errorf("failure (-want +got)\n%s", diff)
		}
		s.wantTrace("first")
		s.commit.Do = s.step("commit").Do
		s.start() // nor is it taken up again, and its key is free
		s.submit("b", "x")
		s.wait("b", op.StateDone)
		s.wantTrace("first", "first", "commit", "last")
	})
}

func TestAParkedOpCanBeDropped(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = fails(op.UnknownOutcome(errBoom))
		s.start()
		s.submit("a")
		s.wait("a", op.StateNeedsOperator)
		s.runner.Halt()
		if err := s.runner.Drop(t.Context(), "a", op.Failure{Code: "stale_epoch"}); err != nil {
			t.Fatal(err)
		}
		if err := s.runner.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateUndone)
	})
}
