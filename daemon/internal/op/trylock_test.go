// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
)

// try is a TryLock that ends at once.
func (s *stage) try(keys ...string) bool {
	s.t.Helper()
	called := false
	free := s.runner.TryLock(keys, func() { called = true })
	if called != free {
		s.t.Errorf("a turn with %v: called %t, answered %t", keys, called, free)
	}
	return free
}

// held is a TryLock that lasts until letGo is called. That returns when the TryLock is over.
func (s *stage) held(keys ...string) (letGo func()) {
	s.t.Helper()
	inside, end, over := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	go func() {
		over <- s.runner.TryLock(keys, func() {
			close(inside)
			<-end
			s.mark("let go")
		})
	}()
	synctest.Wait()
	select {
	case <-inside:
	default:
		s.t.Fatalf("there is no turn with %v", keys)
	}
	return func() { close(end); <-over }
}

func TestATurnIsNotHadWhileAnOpHasItsKey(t *testing.T) {
	bubble(t, func(s *stage) {
		end := make(chan struct{})
		s.commit.Do = func(context.Context, *op.Run) error { <-end; return nil }
		s.start()
		s.submit("a", "x")
		s.submit("b", "x", "y")
		synctest.Wait()
		if s.try("x") {
			t.Error("it came into the middle of an op")
		}
		if s.try("y", "z") {
			t.Error("it overtook an op that waits")
		}
		if !s.try("z") {
			t.Error("it was kept off by ops of other keys")
		}
		close(end)
		s.wait("b", op.StateDone)
		synctest.Wait()
		if !s.try("x", "y") {
			t.Error("it is kept off by ops that are over")
		}
	})
}

func TestATurnIsNotHadWhileAnOpIsParked(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Observe = always(op.Unknown, nil)
		s.start()
		s.submit("a", "x")
		s.wait("a", op.StateNeedsOperator)
		synctest.Wait()
		if s.try("x") {
			t.Error("it came into the middle of an op that is parked")
		}
		s.start()
		if s.try("x") {
			t.Error("it came into the middle of an op that is parked since before the start")
		}
	})
}

func TestAnOpThatComesDuringATurnGetsItsOwnAfterwards(t *testing.T) {
	bubble(t, func(s *stage) {
		s.start()
		other := s.held("y")
		letGo := s.held("x")
		if s.try("x") {
			t.Error("a turn was had twice")
		}
		s.submit("a", "x")
		synctest.Wait()
		if st := s.status("a"); st.Waiting != "turn" || st.Behind != "" {
			t.Errorf("a waits for %q, behind %q", st.Waiting, st.Behind)
		}
		other()
		synctest.Wait()
		s.wantTrace("let go")
		letGo()
		s.wait("a", op.StateDone)
		s.wantTrace("let go", "let go", "first", "commit", "last")
	})
}

// forgetfulJournal hides the records of one op.
type forgetfulJournal struct {
	*optest.Journal
	of string
}

func (j *forgetfulJournal) Records(ctx context.Context, opID string) ([]op.Record, error) {
	if opID == j.of {
		return nil, errBoom
	}
	return j.Journal.Records(ctx, opID)
}

func TestThereIsNoTurnBeforeAllOpsAreTakenUp(t *testing.T) {
	bubble(t, func(s *stage) {
		s.commit.Do, s.commit.Observe = untilCancelled, nil
		s.start()
		s.submit("a", "x")
		s.submit("b", "y")
		synctest.Wait()
		s.runner.Stop()
		if s.try("z") {
			t.Error("there is one after the stop")
		}
		journal := &forgetfulJournal{Journal: s.journal, of: "b"}
		s.cfg.Journal = journal
		s.runner = s.newRunner(s.cfg)
		if s.try("y") {
			t.Error("it came into the middle of an op that was not resumed")
		}
		if err := s.runner.Resume(t.Context()); !errors.Is(err, errBoom) {
			t.Fatalf("resume: %v", err)
		}
		if s.try("y") {
			t.Error("it came into the middle of an op that could not be resumed")
		}
		journal.of = ""
		if err := s.runner.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.try("x") || s.try("y") || !s.try("z") {
			t.Error("all are resumed, and there is one with the key of an op, or none with another")
		}
	})
}

func TestAHaltWaitsForATurnAndThereIsNoneUntilResume(t *testing.T) {
	bubble(t, func(s *stage) {
		s.start()
		letGo := s.held("x")
		s.submit("a", "x")
		halted := make(chan struct{})
		go func() { s.runner.Halt(); close(halted) }()
		synctest.Wait()
		select {
		case <-halted:
			t.Error("the halt did not wait for it")
		default:
		}
		if s.try("y") {
			t.Error("there is one during the halt")
		}
		letGo()
		<-halted
		if s.try("y") {
			t.Error("there is one after the halt")
		}
		if err := s.runner.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateDone)
		s.wantTrace("let go", "first", "commit", "last")
		synctest.Wait()
		if !s.try("x") {
			t.Error("there is none after the resume")
		}
	})
}

func TestAStopWaitsForATurnAndTheNextStartGoesOn(t *testing.T) {
	bubble(t, func(s *stage) {
		s.start()
		letGo := s.held("x")
		s.submit("a", "x")
		stopped := make(chan struct{})
		go func() { s.runner.Stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("the stop did not wait for it")
		default:
		}
		letGo()
		<-stopped
		s.wantTrace("let go")
		s.start()
		s.wait("a", op.StateDone)
	})
}
