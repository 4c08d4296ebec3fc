// SPDX-License-Identifier: Apache-2.0

package op

import (
	"fmt"
	"time"
)

// A journal that refuses a record stops the op until the journal accepts it. A paused guest must
// not wait that long, so the op leaves a critical section, by effects without records:
//
//  - Before the commit point, the steps of the section are undone, the current one first. When the
//    journal accepts records again, it gets the failure of the current step, and the op is undone
//    as usual.
//  - After the commit point, the rest of the section is done. When the journal accepts records
//    again, each step is done again and recorded.
//
// Do and Undo may be repeated. If the daemon dies before the records are written, it finds the same
// state as after an operator has resumed the guest by hand.

// leaveAfter is how long the journal may refuse a record before the op leaves its critical
// section.
const leaveAfter = time.Second

// mayLeave reports whether the op may leave a critical section while the journal refuses these
// records.
func (a *activeOp) mayLeave(events []event) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return events[0].kind != EventNeedsOperator && a.criticalLocked()
}

// failsToLeave reports whether a step must fail, because the journal refuses its notes, for the op
// to leave its critical section.
func (a *activeOp) failsToLeave() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.criticalLocked() && a.progress.State == StateRunning && !a.progress.Committed
}

// leave undoes the op's critical section or, after the commit point, does its remaining steps,
// without records. It may be called again.
func (a *activeOp) leave(events []event) error {
	p := a.snapshot()
	if a.committedWith(events) {
		return a.leaveForward(p.Current, events[0].kind == EventSucceeded)
	}
	for i := p.Current; i >= 0 && a.plan.Steps[i].Critical; i-- {
		step := &a.plan.Steps[i]
		if step.Undo == nil {
			continue
		}
		if err := a.callUndo(step, a.newRun(step.Name)); err != nil {
			return fmt.Errorf("undo step %s: %w", step.Name, err)
		}
	}
	return nil
}

func (a *activeOp) leaveForward(current int, done bool) error {
	if done {
		current++
	}
	for i := current; i < len(a.plan.Steps) && a.plan.Steps[i].Critical; i++ {
		step := &a.plan.Steps[i]
		run := a.newRun(step.Name)
		run.committed = true // the record of the commit is not stored yet
		if err := a.callDo(a.ctx, step, run); err != nil {
			return fmt.Errorf("do step %s: %w", step.Name, err)
		}
	}
	return nil
}

func (a *activeOp) committedWith(events []event) bool {
	return a.snapshot().Committed || events[0].kind == EventSucceeded && events[0].step == a.plan.Commit
}

// failsAsLeft reports whether the journal must get the failure of the current step instead of
// these records, once the op has left its critical section.
func (a *activeOp) failsAsLeft(events []event) bool {
	return !a.committedWith(events) && (events[0].kind == EventStarted || events[0].kind == EventSucceeded)
}
