// SPDX-License-Identifier: Apache-2.0

package op

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// verdict is what became of a step that was to be done.
type verdict int

const (
	// verdictLeave: the runner is stopped; nothing is recorded.
	verdictLeave verdict = iota
	verdictSucceeded
	// verdictFailed: permanent, before the commit point.
	verdictFailed
	// verdictOperator: nobody knows what happened, or it must succeed and does
	// not.
	verdictOperator
)

// contradictionDelay is how long to wait before a step is tried again that said
// that it did what then cannot be seen.
const contradictionDelay = 50 * time.Millisecond

// do brings the current step to its end and records it. It returns false if
// the op cannot go on now.
func (a *activeOp) do(step *Step, status StepStatus) bool {
	a.fault(step, momentBeforeStarted)
	repeat := status == StepStarted
	if a.announced == step.Name {
		a.announced, repeat = "", false
	} else if w := a.record(event{EventStarted, step.Name, nil}); w != writtenAll {
		return w.goesOn()
	}
	a.fault(step, momentAfterStarted)
	run := a.newRun(step.Name)
	v, err := a.bring(step, run, repeat)
	switch v {
	case verdictSucceeded:
		if w := a.recordSuccess(step, run.output); w != writtenAll {
			return w.goesOn()
		}
		a.fault(step, momentAfterSucceeded)
		return true
	case verdictFailed:
		a.r.cfg.Log.Warn("step failed, the op is undone", "op", a.op.ID, "step", step.Name, "err", err)
		return a.record(event{EventFailed, step.Name, encodeFailure(a.r.cfg.Describe(err))}).goesOn()
	case verdictOperator:
		return a.park(a.r.cfg.Describe(err))
	case verdictLeave:
	}
	return false
}

// recordSuccess records that the current step has succeeded. Inside a critical section the same
// commit says that the next step is started: the guest waits for each.
func (a *activeOp) recordSuccess(step *Step, output json.RawMessage) written {
	events := []event{{EventSucceeded, step.Name, output}}
	next := ""
	if i := a.plan.index(step.Name) + 1; step.Critical && i < len(a.plan.Steps) && a.plan.Steps[i].Critical {
		next = a.plan.Steps[i].Name
		events = append(events, event{EventStarted, next, nil})
	}
	w := a.record(events...)
	if w == writtenAll {
		a.announced = next
	}
	return w
}

// bring tries a step until there is a verdict. The world decides: Do's error
// counts only when Observe says that it did not happen. While that question is
// open an interruption has to wait, or it could undo what is past undoing.
func (a *activeOp) bring(step *Step, run *Run, repeat bool) (verdict, error) {
	ctx := a.stepContext()
	tries := retrier{a: a, ctx: ctx, step: step.Name, maxTries: 1}
	if a.snapshot().Committed {
		tries.maxTries = a.r.cfg.MaxTries
	}
	for ; ; repeat = true {
		if repeat && step.Observe != nil {
			if v, err := a.look(step, run); v != verdictFailed {
				return v, err
			}
		}
		if cause := a.interruption(); cause != nil {
			return verdictFailed, cause
		}
		tries.begin()
		doErr := a.callDo(ctx, step, run)
		if a.stopping() {
			return verdictLeave, nil
		}
		a.fault(step, momentAfterDo)
		v, err := a.outcome(step, run, doErr)
		if v != verdictFailed {
			return v, err
		}
		if isUnknown(err) || a.interruption() != nil || !tries.retry(err) {
			return a.givenUp(err)
		}
	}
}

// givenUp is the verdict over a step that did not happen, is not tried again,
// and whose last try ended with err. An interruption is asked for once: when
// the runner stops in between, the second answer would be another.
func (a *activeOp) givenUp(err error) (verdict, error) {
	cause := a.interruption()
	switch {
	case isUnknown(err):
		return verdictOperator, err
	case a.stopping():
		return verdictLeave, nil
	case cause != nil:
		return verdictFailed, cause
	case a.snapshot().Committed:
		return verdictOperator, err
	default:
		return verdictFailed, err
	}
}

// outcome is what Do achieved, whatever it returned. verdictFailed means that
// it did not happen, and comes with the reason.
func (a *activeOp) outcome(step *Step, run *Run, doErr error) (verdict, error) {
	switch {
	case doErr == nil && (step.Observe == nil || step.Verifies):
		return verdictSucceeded, nil
	case step.Observe == nil:
		return verdictFailed, doErr
	}
	v, err := a.look(step, run)
	switch {
	case v == verdictOperator && isUnknown(err): // which says what is to be done; Do's error is older
		return v, err
	case v == verdictOperator:
		return v, errors.Join(err, doErr)
	case v == verdictSucceeded && doErr != nil:
		a.r.cfg.Log.Warn("step reports an error but it happened", "op", a.op.ID, "step", step.Name, "err", doErr)
	case v == verdictFailed && doErr == nil:
		// Or it happened and is gone again: Do finds out which.
		return v, Retry(contradictionDelay, fmt.Errorf("step %s reports success but it did not happen", step.Name))
	}
	return v, doErr
}

// look asks Observe until it answers. If it cannot look for too long that is as
// good as unknown: what is not known is never undone.
func (a *activeOp) look(step *Step, run *Run) (verdict, error) {
	tries := retrier{a: a, ctx: a.ctx, step: step.Name, maxTries: a.r.cfg.MaxTries}
	for {
		tries.begin()
		seen, err := a.callObserve(step, run)
		if err == nil {
			tries.succeeded()
		}
		switch {
		case a.stopping():
			return verdictLeave, nil
		case err != nil:
			if tries.retry(err) {
				continue
			}
			if a.stopping() {
				return verdictLeave, nil
			}
			return verdictOperator, fmt.Errorf("observe step %s: %w", step.Name, err)
		case seen == Done:
			return verdictSucceeded, nil
		case seen == NotDone:
			return verdictFailed, nil
		default:
			return verdictOperator, fmt.Errorf("whether step %s happened is unknown", step.Name)
		}
	}
}

func isUnknown(err error) bool {
	var u *unknownError
	return errors.As(err, &u)
}
