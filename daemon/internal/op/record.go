// SPDX-License-Identifier: Apache-2.0

package op

import (
	"errors"
	"time"
)

type written int

const (
	// writtenNot: the runner is stopped, or the history cannot be followed. The op cannot go on
	// now.
	writtenNot written = iota
	writtenAll
	// writtenFailure: the op has left its critical section, and the journal has the failure of the
	// current step instead of the records. The op goes on.
	writtenFailure
)

func (w written) goesOn() bool { return w != writtenNot }

// record stores records in one commit, and tries until the journal accepts them. Meanwhile the op
// may only leave a critical section.
func (a *activeOp) record(events ...event) written {
	since, left := time.Now(), false
	try, result := func() error { return a.append(events...) }, writtenAll
	for delay := (backoff{}); ; {
		if a.stopping() {
			return writtenNot
		}
		err := try()
		if err == nil {
			a.setTrouble(nil)
			return result
		}
		if errors.Is(err, ErrHistory) {
			a.setBroken(err)
			a.r.changed(a.op.ID)
			return writtenNot
		}
		a.r.cfg.Log.Warn("journal does not take a record", "op", a.op.ID, "step", events[0].step, "record", events[0].kind, "err", err)
		a.setTrouble(err)
		mayLeave := !left && a.mayLeave(events)
		if mayLeave && (events[0].kind == EventFailed || time.Since(since) >= leaveAfter) {
			leaveErr := a.leave(events)
			left = leaveErr == nil
			a.r.cfg.Log.Warn("the op leaves its critical section until the journal takes records", "op", a.op.ID, "step", events[0].step, "err", leaveErr)
			if left && a.failsAsLeft(events) {
				try, result = func() error { return a.appendFailure(err) }, writtenFailure
			}
		}
		wait := delay.next()
		if mayLeave && !left { // try again by leaveAfter
			wait = min(wait, max(leaveAfter-time.Since(since), firstDelay))
		}
		sleep(a.ctx, wait)
	}
}

// appendFailure tries once to record that the current step has failed because the journal refused a
// record. It returns nil if the op is already being undone.
func (a *activeOp) appendFailure(cause error) error {
	if a.inDoubt != nil {
		if _, err := a.settle(); err != nil {
			return err
		}
	}
	p := a.snapshot()
	if p.State != StateRunning {
		return nil
	}
	step := a.plan.Steps[p.Current].Name
	events := []event{{EventFailed, step, encodeFailure(a.r.cfg.Describe(cause))}}
	if p.Steps[p.Current] == StepPending {
		events = append([]event{{EventStarted, step, nil}}, events...)
	}
	return a.append(events...)
}

func (a *activeOp) park(f Failure) bool {
	if a.record(event{EventNeedsOperator, "", encodeFailure(f)}).goesOn() {
		a.r.cfg.Log.Error("op waits for the operator", "op", a.op.ID, "err", f.Message)
	}
	return false
}
