// SPDX-License-Identifier: Apache-2.0

package op

import (
	"fmt"
	"time"
)

// A journal that takes no record keeps an op where it is, for as long as that lasts. In a critical
// section a guest would stand still as long, so the section is left, by effects that have no
// record:
//
//   - Before the commit point, the steps of the section are undone, the current one first. When
//     the journal takes records again the current step has failed, and the op is undone as ever.
//   - Behind it, the rest of the section is done. When the journal takes records again they are
//     written one after the other, and each step is done again.
//
// Do and Undo bear being called again, and a daemon that dies meanwhile finds what a person leaves
// that resumes a guest in a section.

// leaveAfter is how long the journal may refuse a record in a critical section.
const leaveAfter = time.Second

// mayLeave reports whether the op is in a critical section that it may leave while the journal does
// not take these records. An op that stops for the operator stays as it is.
func (a *activeOp) mayLeave(events []event) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return events[0].kind != EventNeedsOperator && a.criticalLocked()
}

// failsToLeave reports whether a step whose notes the journal does not take has to fail, so that
// the op leaves the critical section that it is in.
func (a *activeOp) failsToLeave() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.criticalLocked() && a.progress.State == StateRunning && !a.progress.Committed
}

// leave leaves the critical section that the op is in. It may be called again.
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

// leaveForward does the steps of the section from the current one on, or from the next one if
// the current one is done.
func (a *activeOp) leaveForward(current int, done bool) error {
	if done {
		current++
	}
	for i := current; i < len(a.plan.Steps) && a.plan.Steps[i].Critical; i++ {
		step := &a.plan.Steps[i]
		if err := a.callDo(a.ctx, step, a.newRun(step.Name)); err != nil {
			return fmt.Errorf("do step %s: %w", step.Name, err)
		}
	}
	return nil
}

// committedWith reports whether the op is behind its commit point, or is with these records.
func (a *activeOp) committedWith(events []event) bool {
	return a.snapshot().Committed || events[0].kind == EventSucceeded && events[0].step == a.plan.Commit
}

// failsAsLeft reports whether the failure of the current step is to be recorded instead of these
// records, now that the section was left.
func (a *activeOp) failsAsLeft(events []event) bool {
	return !a.committedWith(events) && (events[0].kind == EventStarted || events[0].kind == EventSucceeded)
}
