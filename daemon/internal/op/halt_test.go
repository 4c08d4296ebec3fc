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
