// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
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
		s.runner.Halt() // a second halt is harmless
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

// In real time: fake time does not pass while a goroutine waits for a lock.
func TestAHaltDoesNotWaitForAStepThatSubmitsAnOp(t *testing.T) {
	s := newStage(t)
	begun, submitted := make(chan struct{}), make(chan error, 1)
	s.commit.Do = func(ctx context.Context, _ *op.Run) error {
		close(begun)
		<-ctx.Done() // the halt is under way
		submitted <- s.runner.Submit(context.WithoutCancel(ctx), op.Op{ID: "b", Kind: "k"})
		return nil
	}
	s.start()
	s.submit("a")
	<-begun
	halted := make(chan struct{})
	go func() { s.runner.Halt(); close(halted) }()
	select {
	case <-halted:
	case <-time.After(10 * time.Second):
		t.Fatal("the halt does not end")
	}
	if err := <-submitted; !errors.Is(err, op.ErrStopped) {
		t.Errorf("submit: got %v, want ErrStopped", err)
	}
}

// stoppingJournal stops the runner before it stores an op, which takes a while.
type stoppingJournal struct {
	*optest.Journal
	stop    func()
	stopped chan struct{}
}

func (j *stoppingJournal) Create(ctx context.Context, o op.Op) (op.Op, error) {
	go func() {
		j.stop()
		close(j.stopped)
	}()
	<-time.After(time.Second)
	return j.Journal.Create(ctx, o)
}

func TestAnOpThatIsStoredWhileTheRunnerStopsIsAcceptedAndReadByTheNextOne(t *testing.T) {
	bubble(t, func(s *stage) {
		journal := &stoppingJournal{Journal: s.journal, stopped: make(chan struct{})}
		runner := s.newRunner(op.Config{Journal: journal})
		journal.stop = runner.Stop
		submitted := make(chan error, 1)
		go func() { submitted <- runner.Submit(s.t.Context(), op.Op{ID: "a", Kind: "k"}) }()
		<-journal.stopped
		s.start()
		if err := <-submitted; err != nil {
			t.Errorf("it is refused, and is done at the next start: %v", err)
		}
		s.wait("a", op.StateDone)
	})
}

// hangingJournal blocks Create until the context of the call ends.
type hangingJournal struct {
	*optest.Journal
	began chan struct{}
}

func (j *hangingJournal) Create(ctx context.Context, _ op.Op) (op.Op, error) {
	close(j.began)
	<-ctx.Done()
	return op.Op{}, fmt.Errorf("%w: %w", op.ErrJournal, context.Cause(ctx))
}

func TestAStopDoesNotWaitForEverForAJournalThatTakesNoOp(t *testing.T) {
	bubble(t, func(s *stage) {
		journal := &hangingJournal{Journal: s.journal, began: make(chan struct{})}
		runner := s.newRunner(op.Config{Journal: journal})
		submitted := make(chan error, 1)
		go func() { submitted <- runner.Submit(context.Background(), op.Op{ID: "a", Kind: "k"}) }()
		<-journal.began
		asked := time.Now()
		stopped := make(chan struct{})
		go func() {
			runner.Stop()
			close(stopped)
		}()
		select {
		case <-stopped:
		case <-time.After(time.Hour):
			t.Fatal("the stop does not end")
		}
		if took := time.Since(asked); took < time.Second || took > time.Minute {
			t.Errorf("it took %s", took)
		}
		if err := <-submitted; !errors.Is(err, op.ErrJournal) || !errors.Is(err, op.ErrStopped) {
			t.Errorf("submit: %v", err)
		}
	})
}
