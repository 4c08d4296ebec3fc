// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/op"
)

func TestAJournalThatTakesNothingStopsTheOpWhereItIs(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = func(context.Context, *op.Run) error {
			s.mark("first")
			s.journal.SetDown(true)
			return nil
		}
		s.start()
		s.submit("a")
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		st := s.status("a")
		if st.State != op.StateRunning || st.Failure == nil || st.Failure.Code != "journal_unavailable" {
			t.Errorf("a is %s, %+v", st.State, st.Failure)
		}
		s.wantTrace("first")
		s.journal.SetDown(false)
		if st := s.wait("a", op.StateDone); st.Failure != nil {
			t.Errorf("the trouble is still shown: %+v", st.Failure)
		}
		s.wantTrace("first", "commit", "last")
	})
}

func TestAnEffectWhoseNoteWasNotTakenIsTriedAgain(t *testing.T) {
	for name, stored := range map[string]bool{"lost": false, "stored": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *stage) {
				s.journal.FailAppend(2, stored)
				tries := 0
				s.first.Do = func(ctx context.Context, r *op.Run) error {
					tries++
					if err := r.Note(ctx, tries); err != nil {
						if !errors.Is(err, op.ErrJournal) {
							t.Errorf("got %v, want ErrJournal", err)
						}
						return err
					}
					s.mark("first")
					return nil
				}
				s.start()
				s.submit("a")
				s.wait("a", op.StateDone)
				s.wantTrace("first", "commit", "last")
				if tries != 2 {
					t.Errorf("%d tries, want 2", tries)
				}
			})
		})
	}
}

func TestANoteIsNotWrittenOnceTheStepIsCancelled(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = func(ctx context.Context, r *op.Run) error {
			<-ctx.Done()
			if err := r.Note(ctx, 1); !errors.Is(err, errCancel) {
				t.Errorf("got %v, want the cause of the interruption", err)
			}
			return ctx.Err()
		}
		s.start()
		s.submit("a")
		synctest.Wait()
		s.interrupt("a")
		s.wait("a", op.StateUndone)
	})
}

// resumeWith puts an op with these records into the journal and resumes it.
func (s *stage) resumeWith(records ...op.Record) {
	s.t.Helper()
	if _, err := s.journal.Create(s.t.Context(), s.stored("a")); err != nil {
		s.t.Fatal(err)
	}
	for i, r := range records {
		r.OpID, r.Seq = "a", int64(i+1)
		if err := s.journal.Append(s.t.Context(), r); err != nil {
			s.t.Fatal(err)
		}
	}
	s.start()
	synctest.Wait()
}

func TestAHistoryThatCannotBeFollowedParksTheOpAndIsLeftAsItIs(t *testing.T) {
	for name, records := range map[string][]op.Record{
		"a step of another version": {{Step: "renamed", Kind: op.EventStarted}},
		"a contradiction":           {{Step: "first", Kind: op.EventSucceeded}},
		"a kind of another version": {{Step: "first", Kind: "thought_about"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *stage) {
				s.resumeWith(records...)
				before := s.kinds("a")
				s.wait("a", op.StateNeedsOperator)
				if err := s.runner.Continue(s.t.Context(), "a"); !errors.Is(err, op.ErrHistory) {
					t.Errorf("continue: got %v, want ErrHistory", err)
				}
				if diff := cmp.Diff(before, s.kinds("a")); diff != "" {
					t.Errorf("(-before +after)\n%s", diff)
				}
				s.wantTrace()
			})
		})
	}
}

func TestAnOpOfAnUnknownKindIsParked(t *testing.T) {
	bubble(t, func(s *stage) {
		if _, err := s.journal.Create(s.t.Context(), op.Op{ID: "a", Kind: "future"}); err != nil {
			t.Fatal(err)
		}
		s.start()
		synctest.Wait()
		s.wait("a", op.StateNeedsOperator)
		if err := s.runner.Continue(s.t.Context(), "a"); !errors.Is(err, op.ErrUnknownKind) {
			t.Errorf("continue: got %v, want ErrUnknownKind", err)
		}
		if err := s.runner.Interrupt("a", errCancel); !errors.Is(err, op.ErrParked) {
			t.Errorf("interrupt: got %v, want ErrParked", err)
		}
	})
}

func TestAHistoryThatWasRepairedGoesOnWithTheOperatorsWord(t *testing.T) {
	bubble(t, func(s *stage) {
		s.resumeWith(op.Record{Step: "first", Kind: op.EventStarted}, op.Record{Step: "renamed", Kind: op.EventStarted})
		s.wait("a", op.StateNeedsOperator)
		s.journal.Cut("a", 1)
		if err := s.runner.Continue(s.t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateDone)
	})
}

func TestARecordThatSomebodyElseWroteParksTheOp(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = func(ctx context.Context, _ *op.Run) error {
			foreign := op.Record{OpID: "a", Seq: 2, Step: "first", Kind: op.EventNoted, Data: json.RawMessage(`{}`)}
			return s.journal.Append(ctx, foreign)
		}
		s.start()
		s.submit("a")
		st := s.wait("a", op.StateNeedsOperator)
		s.wantTrace()
		if st.Failure == nil {
			t.Error("no failure is shown")
		}
	})
}

func TestAnOpThatNobodyResumedIsNotWaitedFor(t *testing.T) {
	bubble(t, func(s *stage) {
		s.start()
		if _, err := s.journal.Create(s.t.Context(), s.stored("a")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.runner.Wait(s.t.Context(), "a"); !errors.Is(err, op.ErrStopped) {
			t.Errorf("got %v, want ErrStopped", err)
		}
	})
}

func TestContinueThatTheJournalDoesNotTakeLeavesTheOpParked(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Observe = always(op.Unknown, nil)
		s.start()
		s.submit("a")
		s.wait("a", op.StateNeedsOperator)
		s.journal.SetDown(true)
		if err := s.runner.Continue(s.t.Context(), "a"); !errors.Is(err, op.ErrJournal) {
			t.Errorf("got %v, want ErrJournal", err)
		}
		s.wait("a", op.StateNeedsOperator)
		s.journal.SetDown(false)
		if err := s.runner.Continue(s.t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateNeedsOperator)
		want := []string{"first started", " needs_operator", " resumed", "first started", " needs_operator"}
		if diff := cmp.Diff(want, s.kinds("a")); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}
