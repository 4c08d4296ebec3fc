// SPDX-License-Identifier: Apache-2.0

package op

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

type verdict int

const (
	// verdictLeave: the runner is stopped; nothing is recorded.
	verdictLeave verdict = iota
	verdictSucceeded
	// verdictFailed: the step did not happen. Without another try the op is undone.
	verdictFailed
	// verdictOperator: the outcome is unknown, or a step after the commit point keeps failing.
	verdictOperator
)

// contradictionDelay is the delay before the next try when Do reports success and Observe reports
// NotDone.
const contradictionDelay = 50 * time.Millisecond

// do runs the current step and records the result. It returns false if the op cannot go on now.
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

// recordSuccess records that the current step has succeeded. In a critical section the same commit
// records the start of the next step: the paused guest waits for each commit.
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

// bring tries a step until there is a verdict. Observe decides: an error of Do counts only if
// Observe reports NotDone. Until Observe answers, an interruption waits: the step may have been the
// commit point.
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

// givenUp returns the verdict for a step that did not happen and is not tried again; err is the
// error of the last try. It calls interruption once: a second call may return nil, after a stop of
// the runner.
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

// outcome returns whether Do took effect, regardless of its error.
func (a *activeOp) outcome(step *Step, run *Run, doErr error) (verdict, error) {
	switch {
	case doErr == nil && (step.Observe == nil || step.Verifies):
		return verdictSucceeded, nil
	case step.Observe == nil:
		return verdictFailed, doErr
	}
	v, err := a.look(step, run)
	switch {
	case v == verdictOperator && isUnknown(err): // err has the operator's next action; doErr is older
		return v, err
	case v == verdictOperator:
		return v, errors.Join(err, doErr)
	case v == verdictSucceeded && doErr != nil:
		a.r.cfg.Log.Warn("step reports an error but it happened", "op", a.op.ID, "step", step.Name, "err", doErr)
	case v == verdictFailed && doErr == nil:
		// Or the step happened and was reverted: the next Do detects that.
		return v, Retry(contradictionDelay, fmt.Errorf("step %s reports success but it did not happen", step.Name))
	}
	return v, doErr
}

// look calls Observe until it answers. After MaxTries errors the outcome counts as unknown, and an
// unknown outcome is never undone.
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
