// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/op"
)

func panics(context.Context, *op.Run) error { panic("nil pointer") }

func TestAPanicBeforeTheCommitPointUndoesTheOp(t *testing.T) {
	bubble(t, func(s *stage) {
		s.commit.Do = panics
		s.start()
		s.submit("a")
		st := s.wait("a", op.StateUndone)
		if !strings.Contains(st.Failure.Message, "nil pointer") {
			t.Errorf("the failure is %q", st.Failure.Message)
		}
		s.wantTrace("first", "undo commit", "undo first")
	})
}

func TestAPanicThatDoesNotEndIsForTheOperator(t *testing.T) {
	for name, breakIt := range map[string]func(*stage){
		"behind the commit point": func(s *stage) { s.last.Do = panics },
		"in an undo":              func(s *stage) { s.commit.Do, s.first.Undo = fails(errBoom), panics },
		"in an observe": func(s *stage) {
			s.first.Observe = func(context.Context, *op.Run) (op.Observation, error) { panic("nil pointer") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *stage) {
				breakIt(s)
				s.start()
				s.submit("a")
				s.wait("a", op.StateNeedsOperator)
			})
		})
	}
}
