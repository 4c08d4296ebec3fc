// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
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

// Wherever the runner panics, the daemon and its other ops continue, and after a fix this op does
// too.
func TestAPanicOfTheRunnerStopsOneOpForTheOperator(t *testing.T) {
	for name, breakIt := range map[string]func(s *stage, panics func(opID string)){
		"when something was recorded": func(s *stage, panics func(string)) { s.onChange = panics },
		"when an effect is made durable": func(s *stage, panics func(string)) {
			s.cfg.MakeDurable = func() error { panics("a"); return nil }
		},
		"at a fault point": func(s *stage, panics func(string)) { s.cfg.FaultPoint = func(string) { panics("a") } },
		"where an error is described": func(s *stage, panics func(string)) {
			s.commit.Do = fails(wordless{func() { panics("a") }})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *stage) {
				var mended atomic.Bool
				breakIt(s, func(opID string) {
					if opID == "a" && !mended.Load() {
						panic("nil pointer")
					}
				})
				s.start()
				s.submit("a", "one")
				st := s.wait("a", op.StateNeedsOperator)
				if !strings.Contains(st.Failure.Message, "nil pointer") {
					t.Errorf("the failure is %q", st.Failure.Message)
				}
				mended.Store(true)
				s.submit("b", "two")
				ended := s.waitFinal("b")
				if err := s.runner.Continue(context.Background(), "a"); err != nil {
					t.Fatal(err)
				}
				if got := s.waitFinal("a"); got != ended {
					t.Errorf("it ended %s, the other one %s", got, ended)
				}
			})
		})
	}
}

// A panic over an op's records must not end the daemon at each start.
func TestAnOpThatCannotBeReadBackWithoutAPanicStopsForTheOperator(t *testing.T) {
	bubble(t, func(s *stage) {
		s.commit.Do, s.commit.Observe = untilCancelled, nil
		s.start()
		s.submit("a", "one")
		s.submit("b", "two")
		synctest.Wait()
		s.runner.Stop()

		s.commit = s.step("commit")
		s.restart()
		journal := &panickyJournal{Journal: s.journal, of: "a"}
		s.cfg.Journal = journal
		s.runner = s.newRunner(s.cfg)
		if err := s.runner.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.wait("b", op.StateDone)
		st := s.wait("a", op.StateNeedsOperator)
		if !strings.Contains(st.Failure.Message, "nil pointer") {
			t.Errorf("the failure is %q", st.Failure.Message)
		}
		if s.try("one") {
			t.Error("its keys are free")
		}
		if err := s.runner.Continue(t.Context(), "a"); err == nil {
			t.Error("it goes on from records that panic")
		}
		journal.of = ""
		if err := s.runner.Continue(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateDone)

		// An op that is submitted again and is already over.
		journal.of = "b"
		s.submit("b", "two")
		s.wait("b", op.StateNeedsOperator)
		journal.of = ""
		if err := s.runner.Continue(t.Context(), "b"); !errors.Is(err, op.ErrFinished) {
			t.Errorf("it is over: got %v", err)
		}
		s.wait("b", op.StateDone)
	})
}

// panickyJournal cannot decode the records of one op.
type panickyJournal struct {
	*optest.Journal

	of string
}

func (j *panickyJournal) Records(ctx context.Context, opID string) ([]op.Record, error) {
	if opID == j.of {
		panic("nil pointer")
	}
	return j.Journal.Records(ctx, opID)
}

// wordless is an error that panics in Error.
type wordless struct{ panics func() }

func (e wordless) Error() string { e.panics(); return "boom" }

// waitFinal waits until an op is over.
func (s *stage) waitFinal(id string) op.State {
	s.t.Helper()
	st, err := s.runner.Wait(context.Background(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return st.State
}
