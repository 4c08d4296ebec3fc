// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/op"
)

func TestAParkedOpKeepsItsTurnAndIsNotContinuedWhileSomebodyActsForIt(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = fails(op.UnknownOutcome(errBoom))
		s.start()
		s.submit("a", "x")
		s.wait("a", op.StateNeedsOperator)
		inside := func() error {
			if err := s.runner.Continue(t.Context(), "a"); !errors.Is(err, op.ErrNotParked) {
				t.Errorf("continue = %v, want ErrNotParked", err)
			}
			if s.try("x") {
				t.Error("somebody else has got its key")
			}
			return errBoom
		}
		if err := s.runner.WhileParked("a", inside); !errors.Is(err, errBoom) {
			t.Errorf("%v, want that of the function", err)
		}
		if err := s.runner.Continue(t.Context(), "a"); err != nil {
			t.Errorf("continue, later: %v", err)
		}
	})
}

func TestNobodyActsForAnOpThatDoesNotWait(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = untilCancelled
		s.start()
		s.submit("a")
		for _, id := range []string{"a", "none"} {
			err := s.runner.WhileParked(id, func() error { t.Errorf("op %s: called", id); return nil })
			if !errors.Is(err, op.ErrNotParked) {
				t.Errorf("op %s: %v, want ErrNotParked", id, err)
			}
		}
	})
}
