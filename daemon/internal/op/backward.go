// SPDX-License-Identifier: Apache-2.0

package op

import "fmt"

// undoTries is how often an Undo may fail in a row before the op is parked for the operator.
const undoTries = 5

func (a *activeOp) undo(step *Step) bool {
	a.fault(step, momentBeforeUndoStarted)
	if !a.record(event{EventUndoStarted, step.Name, nil}).goesOn() {
		return false
	}
	a.fault(step, momentAfterUndoStarted)
	err := a.reverse(step)
	if a.stopping() {
		return false
	}
	a.fault(step, momentAfterUndo)
	if err != nil {
		a.r.cfg.Log.Error("step cannot be undone", "op", a.op.ID, "step", step.Name, "err", err)
		return a.record(event{EventUndoFailed, step.Name, encodeFailure(a.r.cfg.Describe(err))}).goesOn()
	}
	if !a.record(event{EventUndone, step.Name, nil}).goesOn() {
		return false
	}
	a.fault(step, momentAfterUndone)
	return true
}

// reverse calls Undo until it succeeds or its error is final, also after an interruption.
func (a *activeOp) reverse(step *Step) error {
	if step.Undo == nil {
		return nil
	}
	run := a.newRun(step.Name)
	tries := retrier{a: a, ctx: a.ctx, step: step.Name, maxTries: undoTries}
	for {
		tries.begin()
		err := a.callUndo(step, run)
		if err == nil || a.stopping() {
			return nil
		}
		if !tries.retry(err) {
			return fmt.Errorf("undo step %s: %w", step.Name, err)
		}
	}
}
