// SPDX-License-Identifier: Apache-2.0

package op

import "context"

// waitingTurn is the reason in Status while an op waits for its keys.
const waitingTurn = "turn"

// readBack reads the op's records, and reports whether the op is finished. If that panics, the op
// is parked and the others go on: otherwise each start of the daemon would panic.
func (a *activeOp) readBack(ctx context.Context) (over bool, err error) {
	defer a.parkOnPanic()
	records, err := a.r.cfg.Journal.Records(ctx, a.op.ID)
	if err != nil {
		return false, err
	}
	if n := len(records); n > 0 && records[n-1].Kind == EventFinished {
		return true, nil
	}
	a.inDoubt, a.announced = nil, ""
	a.replay(records)
	return false, nil
}

// replay computes the op's progress from its records. If the op has no plan, or the records are no
// possible history of the plan, the op waits for the operator, and nothing is recorded.
func (a *activeOp) replay(records []Record) {
	if a.plan == nil {
		a.setBroken(a.noPlan)
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

// run is the op's goroutine, until the op is finished or parked, or the runner stops.
func (a *activeOp) run() {
	defer a.parkOnPanic()
	if !a.awaitTurn() {
		return
	}
	for a.advance() {
	}
}

// awaitTurn waits until no earlier op shares a key with this one. It returns false if the runner
// is stopped. An interruption ends the wait only if no step has begun: then there is nothing to
// undo, so the op needs no key.
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

// advance does the next action, or returns false: the op is finished or parked, or the runner is
// stopped.
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

// finish records the op's end. cause is why it was undone, nil if it is done.
func (a *activeOp) finish(cause *Failure) bool {
	var w written
	if cause == nil {
		w = a.record(event{EventFinished, "", nil})
	} else {
		w = a.record(event{EventFinished, "", encodeFailure(*cause)})
	}
	if !w.goesOn() {
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
