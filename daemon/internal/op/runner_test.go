// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

// stage has a plan of three steps with the commit point in the middle, a journal and a runner.
// Tests replace parts of the steps.
type stage struct {
	t       *testing.T
	first   op.Step
	commit  op.Step
	last    op.Step
	journal *optest.Journal
	runner  *op.Runner
	cfg     op.Config
	// onChange and onFinished are registered with every runner, if they are set.
	onChange   func(opID string)
	onFinished func(op.Status)

	mu    sync.Mutex
	trace []string
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, journal: optest.NewJournal()}
	s.first, s.commit, s.last = s.step("first"), s.step("commit"), s.step("last")
	t.Cleanup(s.stop)
	return s
}

// step returns a step that only adds to the trace.
func (s *stage) step(name string) op.Step {
	return op.Step{
		Name: name,
		Do:   func(context.Context, *op.Run) error { s.mark(name); return nil },
		Undo: func(context.Context, *op.Run) error { s.mark("undo " + name); return nil },
	}
}

func (s *stage) mark(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, what)
}

// start makes a runner and resumes the ops, as a daemon does at its start.
func (s *stage) start() {
	s.t.Helper()
	s.restart()
	if err := s.runner.Resume(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// restart is start without Resume.
func (s *stage) restart() {
	s.t.Helper()
	s.stop()
	s.cfg.Journal = s.journal
	s.cfg.Describe = func(err error) op.Failure {
		code := "internal"
		if errors.Is(err, op.ErrJournal) {
			code = "journal_unavailable"
		}
		return op.Failure{Code: code, Message: err.Error()}
	}
	s.runner = s.newRunner(s.cfg)
}

// newRunner returns a runner with the stage's plan and listeners.
func (s *stage) newRunner(cfg op.Config) *op.Runner {
	s.t.Helper()
	r, err := op.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Register(s.plan())
	if s.onChange != nil {
		r.OnChange(s.onChange)
	}
	if s.onFinished != nil {
		r.OnFinished(s.onFinished)
	}
	return r
}

// stored is an op as Submit stores it.
func (s *stage) stored(id string) op.Op {
	plan := s.plan()
	return op.Op{ID: id, Kind: plan.Kind, Steps: plan.Refs(), Commit: plan.Commit}
}

func (s *stage) plan() op.Plan {
	return op.Plan{Kind: "k", Steps: []op.Step{s.first, s.commit, s.last}, Commit: "commit"}
}

func (s *stage) stop() {
	if s.runner != nil {
		s.runner.Stop()
	}
}

func (s *stage) submit(id string, keys ...string) {
	s.t.Helper()
	if err := s.runner.Submit(s.t.Context(), op.Op{ID: id, Kind: "k", Keys: keys}); err != nil {
		s.t.Fatal(err)
	}
}

// wait waits for the end of an op and checks its state.
func (s *stage) wait(id string, want op.State) op.Status {
	s.t.Helper()
	st, err := s.runner.Wait(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	if st.State != want {
		s.t.Fatalf("op %s is %s (%+v), want %s", id, st.State, st.Failure, want)
	}
	return st
}

func (s *stage) status(id string) op.Status {
	s.t.Helper()
	st, err := s.runner.Status(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// kinds returns the records of an op as "step kind".
func (s *stage) kinds(id string) []string {
	s.t.Helper()
	records, err := s.journal.Records(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for _, r := range records {
		all = append(all, fmt.Sprintf("%s %s", r.Step, r.Kind))
	}
	return all
}

func (s *stage) wantTrace(want ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(want, s.trace); diff != "" {
		s.t.Errorf("trace (-want +got)\n%s", diff)
	}
}

// always returns an Observe with a fixed answer.
func always(o op.Observation, err error) func(context.Context, *op.Run) (op.Observation, error) {
	return func(context.Context, *op.Run) (op.Observation, error) { return o, err }
}

// fails returns a Do or Undo with a fixed error.
func fails(err error) func(context.Context, *op.Run) error {
	return func(context.Context, *op.Run) error { return err }
}

// untilCancelled is a Do that lasts until its context ends.
func untilCancelled(ctx context.Context, _ *op.Run) error {
	<-ctx.Done()
	return ctx.Err()
}

func bubble(t *testing.T, f func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newStage(t)) })
}

func TestAnOpThatIsSubmittedTwiceRunsOnce(t *testing.T) {
	bubble(t, func(s *stage) {
		s.start()
		s.submit("a")
		s.submit("a")
		s.wait("a", op.StateDone)
		s.submit("a")
		synctest.Wait()
		s.wantTrace("first", "commit", "last")
		err := s.runner.Submit(s.t.Context(), op.Op{ID: "a", Kind: "k", Group: "other"})
		if !errors.Is(err, op.ErrMismatch) {
			t.Errorf("other content: got %v, want ErrMismatch", err)
		}
		err = s.runner.Submit(s.t.Context(), op.Op{ID: "b", Kind: "none"})
		if !errors.Is(err, op.ErrUnknownKind) {
			t.Errorf("unknown kind: got %v, want ErrUnknownKind", err)
		}
	})
}

func TestAnOpThatTheJournalDoesNotTakeIsNotStarted(t *testing.T) {
	bubble(t, func(s *stage) {
		s.start()
		s.journal.SetDown(true)
		err := s.runner.Submit(s.t.Context(), op.Op{ID: "a", Kind: "k"})
		if !errors.Is(err, op.ErrJournal) {
			t.Errorf("got %v, want ErrJournal", err)
		}
		synctest.Wait()
		s.wantTrace()
	})
}

func TestStatusOfAFinishedOpComesFromTheJournal(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = func(_ context.Context, r *op.Run) error { return r.SetOutput(42) }
		s.start()
		s.submit("a")
		want := s.wait("a", op.StateDone)
		s.start()
		if diff := cmp.Diff(want, s.status("a")); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if string(want.Outputs["first"]) != "42" || want.FinishedAt.IsZero() || want.Failure != nil {
			t.Errorf("got %+v", want)
		}
		if _, err := s.runner.Status(s.t.Context(), "none"); !errors.Is(err, op.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	})
}

func TestAFinishedOpOutlivesItsPlan(t *testing.T) {
	bubble(t, func(s *stage) {
		s.start()
		s.submit("a")
		s.wait("a", op.StateDone)
		s.first.Name = "renamed"
		s.start()
		if st := s.status("a"); st.State != op.StateDone {
			t.Errorf("got %s", st.State)
		}
	})
}

func TestEveryChangeIsAnnouncedWithoutALockHeld(t *testing.T) {
	bubble(t, func(s *stage) {
		var states []string
		s.onChange = func(id string) {
			st := s.status(id)
			states = append(states, fmt.Sprintf("%s/%s/%s", st.State, st.Step, st.Waiting))
		}
		waited := false
		s.commit.Do = func(context.Context, *op.Run) error {
			if waited {
				return nil
			}
			waited = true
			return op.WaitFor("hypervisor", errBoom)
		}
		s.start()
		s.submit("a")
		s.wait("a", op.StateDone)
		synctest.Wait()
		want := []string{
			"running/first/", "running/commit/", "running/commit/", "running/commit/hypervisor",
			"running/commit/", "running/last/", "running/last/", "running//", "done//",
		}
		if diff := cmp.Diff(want, states); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func TestShutdownLeavesNoRecordAndTheNextStartGoesOn(t *testing.T) {
	bubble(t, func(s *stage) {
		s.commit.Do = untilCancelled
		s.start()
		s.submit("a")
		synctest.Wait()
		before := s.kinds("a")
		waited := make(chan error)
		go func() {
			_, err := s.runner.Wait(context.WithoutCancel(s.t.Context()), "a")
			waited <- err
		}()
		synctest.Wait()
		s.stop()
		if err := <-waited; !errors.Is(err, op.ErrStopped) {
			t.Errorf("wait: got %v, want ErrStopped", err)
		}
		if diff := cmp.Diff(before, s.kinds("a")); diff != "" {
			t.Errorf("records of the shutdown (-before +after)\n%s", diff)
		}
		if err := s.runner.Submit(s.t.Context(), op.Op{ID: "b", Kind: "k"}); !errors.Is(err, op.ErrStopped) {
			t.Errorf("submit: got %v, want ErrStopped", err)
		}
		if err := s.runner.Resume(s.t.Context()); !errors.Is(err, op.ErrStopped) {
			t.Errorf("resume: got %v, want ErrStopped", err)
		}
		s.commit.Do = s.step("commit").Do
		s.start()
		s.wait("a", op.StateDone)
		s.wantTrace("first", "commit", "last")
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = untilCancelled
		s.start()
		s.submit("a")
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		if _, err := s.runner.Wait(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAStepThatTheWorldSaysHappenedIsNotDoneAgain(t *testing.T) {
	bubble(t, func(s *stage) {
		s.commit.Do = untilCancelled
		s.start()
		s.submit("a")
		synctest.Wait()
		s.stop()
		s.commit = s.step("commit")
		s.commit.Observe = always(op.Done, nil)
		s.start()
		s.wait("a", op.StateDone)
		s.wantTrace("first", "last")
	})
}

func TestOpsWithOneKeyRunInTheOrderOfSubmission(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Do = func(_ context.Context, r *op.Run) error {
			s.mark(r.OpID())
			timer := time.NewTimer(time.Hour)
			<-timer.C
			return nil
		}
		s.start()
		s.submit("a", "x", "y")
		s.submit("b", "y", "z")
		s.submit("c", "z")
		s.submit("d", "w")
		synctest.Wait()
		s.mu.Lock()
		slices.Sort(s.trace)
		s.mu.Unlock()
		s.wantTrace("a", "d")
		if st := s.status("c"); st.Waiting != "turn" || st.Behind != "b" || st.State != op.StateRunning {
			t.Errorf("c: got %s, waiting for %q behind %q", st.State, st.Waiting, st.Behind)
		}
		s.wait("c", op.StateDone)
		s.wait("d", op.StateDone)
		order := []string{}
		for _, what := range s.trace {
			if what == "a" || what == "b" || what == "c" {
				order = append(order, what)
			}
		}
		if diff := cmp.Diff([]string{"a", "b", "c"}, order); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func TestAParkedOpKeepsItsKeysThroughARestart(t *testing.T) {
	bubble(t, func(s *stage) {
		s.first.Observe = func(_ context.Context, r *op.Run) (op.Observation, error) {
			if r.OpID() == "a" {
				return op.Unknown, nil
			}
			return op.Done, nil
		}
		s.start()
		s.submit("a", "x")
		s.submit("b", "x")
		s.wait("a", op.StateNeedsOperator)
		s.start()
		synctest.Wait()
		if st := s.status("a"); st.State != op.StateNeedsOperator {
			t.Errorf("a is %s after the restart", st.State)
		}
		if st := s.status("b"); st.Waiting != "turn" {
			t.Errorf("b waits for %q, want turn", st.Waiting)
		}
		s.first.Observe = always(op.Done, nil)
		s.start()
		if err := s.runner.Continue(s.t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateDone)
		s.wait("b", op.StateDone)
	})
}

func TestARunnerNeedsAJournal(t *testing.T) {
	if _, err := op.New(op.Config{}); err == nil {
		t.Error("it has none, and was made")
	}
}

func TestPlansThatAreNotValidAreRefused(t *testing.T) {
	good := op.Plan{Kind: "k", Steps: []op.Step{{Name: "a", Do: untilCancelled}}}
	for name, plans := range map[string][]op.Plan{
		"no steps":       {{Kind: "k"}},
		"two of a kind":  {good, good},
		"unknown commit": {{Kind: "k", Steps: good.Steps, Commit: "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			runner, err := op.New(op.Config{Journal: optest.NewJournal()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if recover() == nil {
					t.Error("taken")
				}
			}()
			runner.Register(plans...)
		})
	}
}

func TestAllWhoAskedHearOfAChangeAndOfAnEnd(t *testing.T) {
	bubble(t, func(s *stage) {
		s.restart()
		var heard []string
		for _, who := range []string{"one", "other"} {
			s.runner.OnChange(func(id string) { heard = append(heard, who+" "+id) })
			s.runner.OnFinished(func(st op.Status) { heard = append(heard, who+" "+string(st.State)) })
		}
		s.submit("a")
		s.wait("a", op.StateDone)
		synctest.Wait()
		if diff := cmp.Diff([]string{"one a", "other a"}, heard[:2]); diff != "" {
			t.Errorf("changes (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff([]string{"one done", "other done"}, heard[len(heard)-2:]); diff != "" {
			t.Errorf("ends (-want +got)\n%s", diff)
		}
	})
}
