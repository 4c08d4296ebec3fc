// SPDX-License-Identifier: Apache-2.0

package optest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
)

// endless is longer than any op under test, in fake time.
const endless = 24 * time.Hour

// trial describes the fault of one run of an op, and the allowed ends.
type trial struct {
	name string
	want []op.State

	killAtPoint     string
	killAfterRecord int64
	// forget makes Observe of this step report NotDone, once after the crash.
	forget string
	// fail makes Do of this step fail, before or after its effect, and failUndo its Undo, until the
	// operator calls Continue.
	fail      string
	failAfter bool
	failUndo  string
	mayPark   bool
	// failAppend is the number of the record that the journal refuses.
	failAppend int
	stored     bool
}

// rig is one world, its journal, and the runners that follow each other on them.
type rig struct {
	trial   trial
	world   World
	journal *Journal
	runners []*op.Runner

	mu     sync.Mutex
	points []string
	// killed is closed when the runner crashes, which happens once; its goroutine then blocks until
	// released is closed.
	killed   chan struct{}
	dying    atomic.Bool
	released chan struct{}
	// lifted: Do and Undo fail no more.
	lifted atomic.Bool
	// forgot: Observe has reported NotDone as forget requires.
	forgot atomic.Bool
}

type outcome struct {
	status  op.Status
	points  []string
	records []op.Record
}

func newRig(w World, tr trial) *rig {
	r := &rig{
		trial: tr, world: w, journal: NewJournal(),
		killed: make(chan struct{}), released: make(chan struct{}),
	}
	if tr.failAppend > 0 {
		r.journal.FailAppend(tr.failAppend, tr.stored)
	}
	r.journal.AfterAppend(func(rec op.Record) {
		if rec.Seq == tr.killAfterRecord {
			r.kill()
		}
	})
	return r
}

func (r *rig) close() {
	close(r.released)
	for _, runner := range r.runners {
		runner.Stop()
	}
}

func (r *rig) play(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, endless)
	defer cancel()
	runner, err := r.boot()
	if err != nil {
		return outcome{}, err
	}
	if err := runner.Submit(ctx, r.world.Op()); err != nil {
		return outcome{}, err
	}
	st, err := r.wait(ctx, runner)
	// The op's goroutine passes one more point after the wait has ended.
	synctest.Wait()
	if r.dying.Load() {
		if runner, err = r.boot(); err != nil {
			return outcome{}, err
		}
		if err := runner.Resume(ctx); err != nil {
			return outcome{}, err
		}
		st, err = runner.Wait(ctx, r.world.Op().ID)
	}
	if err == nil && st.State == op.StateNeedsOperator && r.trial.mayPark {
		r.lifted.Store(true)
		if err := runner.Continue(ctx, st.Op.ID); err != nil {
			return outcome{}, err
		}
		st, err = runner.Wait(ctx, st.Op.ID)
	}
	if err != nil {
		return outcome{}, err
	}
	synctest.Wait()
	records, err := r.journal.Records(ctx, st.Op.ID)
	return outcome{st, r.points, records}, err
}

func (r *rig) checkOutcome(o outcome) error {
	if !slices.Contains(r.trial.want, o.status.State) {
		err := fmt.Errorf("the op ended %s, want %v", o.status.State, r.trial.want)
		if f := o.status.Failure; f != nil {
			err = fmt.Errorf("%w: %s", err, f.Message)
		}
		return err
	}
	if crash := r.trial.killAtPoint != "" || r.trial.killAfterRecord > 0; crash && !r.dying.Load() {
		return errors.New("the op did not come to where it was to crash")
	}
	if err := r.world.Check(o.status.State); err != nil {
		return fmt.Errorf("the op ended %s, but %w", o.status.State, err)
	}
	return nil
}

func (r *rig) boot() (*op.Runner, error) {
	plans := r.world.Plans()
	for i := range plans {
		plans[i] = r.disturb(plans[i])
		if len(r.runners) > 0 {
			plans[i] = nextProgram(plans[i])
		}
	}
	runner, err := op.New(op.Config{Journal: r.journal, FaultPoint: r.pass, MaxTries: 3})
	if err != nil {
		return nil, err
	}
	runner.Register(plans...)
	r.runners = append(r.runners, runner)
	return runner, nil
}

// nextProgram returns the plan of the program after an upgrade: with another order, other steps,
// other versions, and another commit point. Ops of the previous program must not change.
func nextProgram(plan op.Plan) op.Plan {
	steps := slices.Clone(plan.Steps)
	slices.Reverse(steps)
	refuse := func(context.Context, *op.Run) error { return errNotPlanned }
	for i := range steps {
		steps = append(steps, op.Step{Name: steps[i].Name, Version: steps[i].Version + 1, Do: refuse, Undo: refuse})
	}
	steps = append(steps, op.Step{Name: "new", Do: refuse, Undo: refuse})
	return op.Plan{Kind: plan.Kind, Steps: append([]op.Step{{Name: "new_first", Do: refuse}}, steps...), Commit: "new_first"}
}

var errNotPlanned = errors.New("a step that the op was not stored with")

func (r *rig) wait(ctx context.Context, runner *op.Runner) (op.Status, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-r.killed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return runner.Wait(ctx, r.world.Op().ID)
}

func (r *rig) pass(name string) {
	r.mu.Lock()
	if !slices.Contains(r.points, name) {
		r.points = append(r.points, name)
	}
	r.mu.Unlock()
	if name == r.trial.killAtPoint {
		r.kill()
	}
}

// kill crashes the runner: the goroutine of the op does not continue, not even with its deferred
// calls, until the trial is checked.
func (r *rig) kill() {
	if r.dying.Swap(true) {
		return
	}
	close(r.killed)
	<-r.released
	runtime.Goexit()
}

func (r *rig) disturb(plan op.Plan) op.Plan {
	plan.Steps = slices.Clone(plan.Steps)
	for i := range plan.Steps {
		s := &plan.Steps[i]
		if s.Name == r.trial.fail {
			s.Do = r.failing(s.Do)
		}
		if s.Name == r.trial.failUndo && s.Undo != nil {
			s.Undo = r.failingUndo(s.Undo)
		}
		if s.Name == r.trial.forget && s.Observe != nil {
			s.Observe = r.forgetting(s.Observe)
		}
	}
	return plan
}

func (r *rig) failing(do func(context.Context, *op.Run) error) func(context.Context, *op.Run) error {
	return func(ctx context.Context, run *op.Run) error {
		switch {
		case r.lifted.Load():
			return do(ctx, run)
		case r.trial.failAfter:
			return errors.Join(do(ctx, run), errInjected)
		default:
			return errInjected
		}
	}
}

func (r *rig) failingUndo(undo func(context.Context, *op.Run) error) func(context.Context, *op.Run) error {
	return func(ctx context.Context, run *op.Run) error {
		if r.lifted.Load() {
			return undo(ctx, run)
		}
		return errInjected
	}
}

func (r *rig) forgetting(observe func(context.Context, *op.Run) (op.Observation, error)) func(context.Context, *op.Run) (op.Observation, error) {
	return func(ctx context.Context, run *op.Run) (op.Observation, error) {
		if r.dying.Load() && !r.forgot.Swap(true) {
			return op.NotDone, nil
		}
		return observe(ctx, run)
	}
}

func (r *rig) history(ctx context.Context) string {
	records, err := r.journal.Records(ctx, r.world.Op().ID)
	if err != nil {
		return err.Error()
	}
	var words []string
	for _, rec := range records {
		words = append(words, strings.TrimSpace(rec.Step+" "+string(rec.Kind)))
	}
	return strings.Join(words, ", ")
}

func (s Subject) run(t *testing.T, tr trial) (o outcome, err error) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(s.New(t), tr)
		defer r.close()
		if o, err = r.play(t.Context()); err == nil {
			err = r.checkOutcome(o)
		}
		if err != nil {
			err = fmt.Errorf("%w\nhistory: %s", err, r.history(t.Context()))
		}
	})
	return o, err
}
