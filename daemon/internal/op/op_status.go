// SPDX-License-Identifier: Apache-2.0

package op

import (
	"encoding/json"
	"errors"
	"maps"
	"time"
)

// Status is the state of an op, for callers.
type Status struct {
	Op    Op
	State State
	// Step is the step being done or undone, empty if there is none.
	Step string
	// Committed: the commit point has passed, so the op cannot be interrupted.
	Committed bool
	// Waiting is the reason of a wait: the argument of WaitFor, "turn" while another op has one of
	// the keys, or empty. WaitingSince is when the wait began, for display. Tries do not end a
	// wait.
	Waiting      string
	WaitingSince time.Time
	// Behind is the op that holds the key while Waiting is "turn", or empty if TryLock holds it.
	Behind string
	// Failure is why the op is being undone, was undone or is parked, or the error of a journal
	// that refuses its next record.
	Failure    *Failure
	FinishedAt time.Time
	// ParkedAt is zero while the op does not wait for the operator.
	ParkedAt time.Time
	// Outputs are the outputs of the steps that succeeded, by step name.
	Outputs map[string]json.RawMessage
}

func statusOf(o Op, plan *Plan, p Progress) Status {
	st := Status{
		Op: o, State: p.State, Committed: p.Committed, Failure: p.Failure,
		FinishedAt: p.FinishedAt, ParkedAt: p.ParkedAt, Outputs: maps.Clone(p.Outputs),
	}
	if plan != nil && !p.State.Final() && p.Current >= 0 {
		st.Step = plan.Steps[p.Current].Name
	}
	return st
}

// statusOfOld returns the status of a finished op from its last record: the present plan may not
// follow the others.
func statusOfOld(o Op, finished Record) Status {
	st := Status{Op: o, State: StateDone, FinishedAt: finished.At}
	if len(finished.Data) == 0 {
		return st
	}
	st.State = StateUndone
	if err := decodeFailure(finished, &st.Failure); err != nil {
		st.Failure = &Failure{Code: "internal", Message: errors.Join(ErrHistory, err).Error()}
	}
	return st
}
