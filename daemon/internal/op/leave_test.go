// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
)

// A guest does not stay paused while a journal refuses records.
func TestAJournalThatTakesNothingEndsACriticalSection(t *testing.T) {
	for name, c := range map[string]struct {
		arm   func(s *stage, down func())
		trace []string // while the journal is down
		end   op.State
		whole []string
	}{
		"before the commit point": {
			func(s *stage, down func()) { s.first.Do = then(s.first.Do, down) },
			[]string{"pause", "resume"},
			op.StateUndone,
			[]string{"pause", "resume", "resume"},
		},
		"in a note": {
			func(s *stage, down func()) {
				s.commit.Do = func(ctx context.Context, r *op.Run) error { down(); return r.Note(ctx, 1) }
			},
			[]string{"pause", "undo commit", "resume"},
			op.StateUndone,
			[]string{"pause", "undo commit", "resume", "undo commit", "resume"},
		},
		"in the undo": {
			func(s *stage, down func()) {
				s.commit.Do = func(context.Context, *op.Run) error { return errBoom }
				s.commit.Undo = then(s.commit.Undo, down)
			},
			[]string{"pause", "undo commit", "undo commit", "resume"},
			op.StateUndone,
			[]string{"pause", "undo commit", "undo commit", "resume", "resume"},
		},
		"behind the commit point": {
			func(s *stage, down func()) {
				s.last.Critical = true
				switched := func(context.Context, *op.Run) error { s.mark("switch"); return nil }
				s.commit.Do = then(switched, down)
				s.last.Do = func(_ context.Context, r *op.Run) error {
					if !r.Committed() {
						s.t.Error("the step does not see that its op is committed")
					}
					s.mark("let run")
					return nil
				}
			},
			[]string{"pause", "switch", "let run"},
			op.StateDone,
			[]string{"pause", "switch", "let run", "let run"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *stage) {
				paused(s)
				c.arm(s, func() { s.journal.SetDown(true) })
				s.start()
				s.submit("a")
				<-time.After(10 * time.Second)
				synctest.Wait()
				s.wantTrace(c.trace...)
				if st := s.status("a"); st.State.Final() || st.Failure == nil || st.Failure.Code != "journal_unavailable" {
					t.Errorf("while the journal is away the op is %s, %+v", st.State, st.Failure)
				}
				s.journal.SetDown(false)
				s.wait("a", c.end)
				s.wantTrace(c.whole...)
			})
		})
	}
}

// The journal has stored the record and the answer was lost: the failed step is the next one.
func TestASectionThatWasLeftFailsAtTheStepThatTheJournalKnows(t *testing.T) {
	bubble(t, func(s *stage) {
		paused(s)
		s.journal.FailAppend(2, true)
		s.first.Do = then(s.first.Do, func() { s.journal.SetDown(true) })
		s.start()
		s.submit("a")
		<-time.After(10 * time.Second)
		synctest.Wait()
		s.journal.SetDown(false)
		s.wait("a", op.StateUndone)
	})
}

// A short failure of the journal pauses a guest for that time only.
func TestAJournalThatIsBackSoonEndsNoCriticalSection(t *testing.T) {
	bubble(t, func(s *stage) {
		paused(s)
		s.first.Do = then(s.first.Do, func() {
			s.journal.SetDown(true)
			time.AfterFunc(500*time.Millisecond, func() { s.journal.SetDown(false) })
		})
		s.start()
		s.submit("a")
		s.wait("a", op.StateDone)
		s.wantTrace("pause", "switch, resume", "last")
	})
}

// then returns a part of a step followed by next.
func then(part func(context.Context, *op.Run) error, next func()) func(context.Context, *op.Run) error {
	return func(ctx context.Context, r *op.Run) error {
		defer next()
		return part(ctx, r)
	}
}

// The guest is paused for at most the promised time, even if the next try is later.
func TestASectionIsLeftInTime(t *testing.T) {
	bubble(t, func(s *stage) {
		runs := paused(s)
		s.first.Do = then(s.first.Do, func() { s.journal.SetDown(true) })
		s.start()
		s.submit("a")
		<-time.After(1100 * time.Millisecond)
		synctest.Wait()
		if !runs() {
			t.Error("the guest still stands still")
		}
		s.journal.SetDown(false)
		s.wait("a", op.StateUndone)
	})
}
