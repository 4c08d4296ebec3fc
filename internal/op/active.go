// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// waitingTurn is the reason that Status shows while an op waits for its keys.
const waitingTurn = "turn"

// activeOp is an op in memory: one that is not finished. Only its goroutine
// changes its progress; an op that waits for the operator has none.
type activeOp struct {
	r      *Runner
	op     Op
	plan   *Plan
	ticket *ticket
	// ctx ends with Stop, and with Halt outside of critical sections.
	ctx    context.Context
	cancel context.CancelFunc

	// forward is what steps get as context before the commit point; an
	// interruption cancels it.
	forward   context.Context
	interrupt context.CancelCauseFunc

	// inDoubt is a record that the journal did not confirm. Whether it is there
	// must be read before anything else is written.
	inDoubt *Record

	mu       sync.Mutex
	progress Progress
	// broken: the records cannot be followed, or what follows them has panicked, so
	// nothing may be written.
	broken error
	// trouble: the journal does not take the next record.
	trouble error
	// claimed: a Continue is at work on the parked op.
	claimed bool
	// halted: ctx ends when the op is in no critical section.
	halted bool
	// waiting is what the op waits for, zero if it does not.
	waiting waiting
	// changed is closed, and replaced, when anything above changes.
	changed chan struct{}
}

// waiting is the reason why an op does nothing, and since when.
type waiting struct {
	on    string
	since time.Time
	// behind is the op whose turn it is, empty if it is nobody's but a TryLock.
	behind string
}

func newActiveOp(r *Runner, o Op) *activeOp {
	a := &activeOp{r: r, op: o, plan: r.plan(o.Kind), ticket: &ticket{o.ID, o.Keys}, changed: make(chan struct{})}
	a.ctx, a.cancel = context.WithCancel(r.ctx)
	a.forward, a.interrupt = context.WithCancelCause(a.ctx)
	return a
}

// readBack reads how far the op is, and whether it is over. If that panics the op is
// parked and the others go on: it would panic at each start of the daemon.
func (a *activeOp) readBack(ctx context.Context) (over bool, err error) {
	defer a.parkOnPanic()
	records, err := a.r.cfg.Journal.Records(ctx, a.op.ID)
	if err != nil {
		return false, err
	}
	if n := len(records); n > 0 && records[n-1].Kind == EventFinished {
		return true, nil
	}
	a.inDoubt = nil
	a.replay(records)
	return false, nil
}

// replay takes the op's progress from its records. Records that cannot be
// followed park the op without a further record.
func (a *activeOp) replay(records []Record) {
	if a.plan == nil {
		a.setBroken(fmt.Errorf("%w: %w %q", ErrHistory, ErrUnknownKind, a.op.Kind))
		return
	}
	p, err := Replay(a.plan, records)
	if err != nil {
		a.setBroken(err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress, a.broken = p, nil
	a.announce()
}

// run is the goroutine of the op. It ends when the op is finished or parked, or
// when the runner is stopped.
func (a *activeOp) run() {
	defer a.parkOnPanic()
	if !a.awaitTurn() {
		return
	}
	for a.advance() {
	}
}

// awaitTurn waits until no op before this one shares a key with it. It returns
// false when the runner is stopped. An interruption ends the wait only if no
// step was begun: then there is nothing to undo, so no key is needed.
func (a *activeOp) awaitTurn() bool {
	p := a.snapshot()
	interrupted := a.forward.Done()
	if p.begun() {
		interrupted = nil
	}
	defer a.setWaiting(waiting{})
	since := a.r.cfg.Now()
	for {
		before, moved := a.r.queue.blockedBy(a.ticket)
		if before == nil {
			return !a.stopping()
		}
		a.setWaiting(waiting{waitingTurn, since, before.op})
		select {
		case <-moved:
		case <-interrupted:
			return !a.stopping()
		case <-a.ctx.Done():
			return false
		}
	}
}

// advance does the next thing that is due. It returns false when nothing is:
// the op is finished or parked, or the runner is stopped.
func (a *activeOp) advance() bool {
	p, interrupted := a.snapshot(), a.interruption()
	switch {
	case a.stopping():
		return false
	case p.State == StateNeedsOperator:
		return false
	case p.last == EventUndoFailed:
		return a.park(*p.Failure)
	case p.Current < 0:
		return a.finish(p.cause)
	case p.State == StateUndoing:
		return a.undo(&a.plan.Steps[p.Current])
	case !p.begun() && interrupted != nil:
		cause := a.r.cfg.Describe(interrupted)
		return a.finish(&cause)
	default:
		return a.do(&a.plan.Steps[p.Current], p.Steps[p.Current])
	}
}

// finish ends the op, with the reason if it was undone.
func (a *activeOp) finish(cause *Failure) bool {
	var written bool
	if cause == nil {
		written = a.record(EventFinished, "", nil)
	} else {
		written = a.record(EventFinished, "", encodeFailure(*cause))
	}
	if !written {
		return false
	}
	a.r.cfg.Log.Info("op finished", "op", a.op.ID, "state", a.snapshot().State)
	a.r.cfg.FaultPoint(finishedFault(a.op.Kind))
	a.r.retire(a)
	st, _ := a.status()
	a.r.finished(st)
	a.cancel()
	return false
}

// park stops the op until Continue.
func (a *activeOp) park(f Failure) bool {
	if a.record(EventNeedsOperator, "", encodeFailure(f)) {
		a.r.cfg.Log.Error("op waits for the operator", "op", a.op.ID, "err", f.Message)
	}
	return false
}

// stepContext is the context of a Do: one that an interruption ends as long as
// the op can still be undone.
func (a *activeOp) stepContext() context.Context {
	if a.snapshot().Committed {
		return a.ctx
	}
	return a.forward
}

// interruption returns the cause of an Interrupt that still counts, or nil. The
// cause is read before anything else: stopping the runner ends forward too, and
// a stop between the two questions must not be taken for an interruption.
func (a *activeOp) interruption() error {
	cause := context.Cause(a.forward)
	if a.stopping() || a.snapshot().Committed {
		return nil
	}
	return cause
}

func (a *activeOp) stopping() bool { return a.ctx.Err() != nil }

// newRun makes what a step sees of the op.
func (a *activeOp) newRun(step string) *Run {
	p := a.snapshot()
	return &Run{
		op:      a.op,
		step:    step,
		outputs: maps.Clone(p.Outputs),
		notes:   maps.Clone(p.Notes),
		note:    a.noteFor(step),
	}
}

func (a *activeOp) fault(step *Step, moment string) {
	a.r.cfg.FaultPoint(faultName(a.op.Kind, step.Name, moment))
}

func (a *activeOp) snapshot() Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.progress
}

func (a *activeOp) isBroken() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.broken
}

func (a *activeOp) isParked() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.parkedLocked()
}

// parkedLocked is isParked for callers that hold mu.
func (a *activeOp) parkedLocked() bool {
	return a.broken != nil || a.progress.State == StateNeedsOperator
}

// setWaiting makes known what the op waits for, and that it does no more.
func (a *activeOp) setWaiting(w waiting) {
	a.mu.Lock()
	same := a.waiting == w
	a.waiting = w
	if !same {
		a.announce()
	}
	a.mu.Unlock()
	if !same {
		a.r.changed(a.op.ID)
	}
}

func (a *activeOp) setBroken(err error) {
	a.mu.Lock()
	a.broken = err
	a.announce()
	a.mu.Unlock()
	a.r.cfg.Log.Error("op waits for the operator", "op", a.op.ID, "err", err)
}

// announce wakes those who wait for a change. The caller holds mu.
func (a *activeOp) announce() {
	close(a.changed)
	a.changed = make(chan struct{})
}
