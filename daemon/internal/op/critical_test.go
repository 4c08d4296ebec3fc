// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
)

// paused returns a stage with a critical section of its first and its commit step: the first pauses
// a guest, the other resumes it.
func paused(s *stage) (guestRuns func() bool) {
	running := true
	s.first.Critical, s.commit.Critical = true, true
	s.first.Do = func(context.Context, *op.Run) error { s.set(&running, false); s.mark("pause"); return nil }
	s.first.Undo = func(context.Context, *op.Run) error { s.set(&running, true); s.mark("resume"); return nil }
	s.commit.Do = func(ctx context.Context, _ *op.Run) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
		}
		s.set(&running, true)
		s.mark("switch, resume")
		return nil
	}
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return running
	}
}

func (s *stage) set(b *bool, to bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*b = to
}

func TestAHaltWaitsForTheEndOfACriticalSection(t *testing.T) {
	bubble(t, func(s *stage) {
		runs := paused(s)
		s.start()
		s.submit("a")
		s.submit("b")
		synctest.Wait()
		s.runner.Halt()
		if !runs() {
			t.Error("the guest is left paused")
		}
		s.wantTrace("pause", "pause", "switch, resume", "switch, resume") // the last step does not run
		if err := s.runner.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateDone)
		s.wait("b", op.StateDone)
	})
}

func TestAHaltLetsAnOpBackOutOfACriticalSection(t *testing.T) {
	bubble(t, func(s *stage) {
		runs := paused(s)
		s.commit.Do = func(context.Context, *op.Run) error { <-time.After(time.Minute); return errBoom }
		s.start()
		s.submit("a")
		synctest.Wait()
		s.runner.Halt()
		s.wantTrace("pause", "undo commit", "resume")
		if !runs() {
			t.Error("the guest is left paused")
		}
	})
}

// A paused guest waits for each commit of the journal. No guest waits before and after the section.
func TestInACriticalSectionAStepEndsAndTheNextBeginsInOneCommit(t *testing.T) {
	for name, failed := range map[string]struct {
		record int
		stored bool
	}{"nothing fails": {}, "the commit is lost": {record: 2}, "its answer is lost": {record: 3, stored: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *stage) {
				paused(s)
				if failed.record > 0 {
					s.journal.FailAppend(failed.record, failed.stored)
				}
				var afterFirst, afterCommit int
				do := s.commit.Do
				s.commit.Do = func(ctx context.Context, r *op.Run) error {
					afterFirst = s.journal.Appends()
					return do(ctx, r)
				}
				s.last.Do = func(context.Context, *op.Run) error { afterCommit = s.journal.Appends(); s.mark("last"); return nil }
				s.start()
				s.submit("a")
				s.wait("a", op.StateDone)
				s.wantTrace("pause", "switch, resume", "last")
				want := 2 // first started; first succeeded with commit started
				if failed.record > 0 && !failed.stored {
					want++
				}
				if afterFirst != want || afterCommit != want+2 {
					t.Errorf("%d commits before the second step and %d before the last, want %d and %d", afterFirst, afterCommit, want, want+2)
				}
			})
		})
	}
}

// A halt stops an op before it enters a critical section.
func TestAHaltKeepsAnOpFromACriticalSection(t *testing.T) {
	bubble(t, func(s *stage) {
		s.commit.Critical = true
		s.first.Do = untilCancelled
		s.start()
		s.submit("a")
		synctest.Wait()
		began := time.Now()
		s.runner.Halt()
		if took := time.Since(began); took > 0 {
			t.Errorf("the halt took %v", took)
		}
		s.wantTrace()
	})
}

// A daemon dies with a guest paused, and starts fenced.
func TestAfterACrashACriticalSectionIsFinishedAndNoMore(t *testing.T) {
	bubble(t, func(s *stage) {
		runs := paused(s)
		s.start()
		s.submit("a", "x")
		s.submit("b", "x") // waits for its turn
		synctest.Wait()
		s.runner.Stop()
		if runs() {
			t.Fatal("the crash came too late")
		}
		before := s.kinds("b")
		s.restart()
		s.runner.Halt()
		if err := s.runner.FinishCritical(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if !runs() {
			t.Error("the guest is left paused")
		}
		s.wantTrace("pause", "switch, resume")
		if !slices.Equal(before, s.kinds("b")) {
			t.Errorf("op b went on: %v", s.kinds("b"))
		}
		s.runner.Halt()
		if err := s.runner.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateDone)
		s.wait("b", op.StateDone)
	})
}
