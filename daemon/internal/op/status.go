// SPDX-License-Identifier: Apache-2.0

package op

import "fmt"

// StepStatus is the status of one step of an op. It is never stored: Next computes it from the
// step's records.
type StepStatus string

// The statuses of a step.
//
//	              started            succeeded
//	pending ────────────▶ started ────────────▶ succeeded
//	                      │  ▲ │ started, noted     │
//	                      │  └─┘ (again, or resumed)│
//	                      │ failed                  │ undo_started
//	                      ▼        undo_started     ▼
//	                    failed ──────────────▶ undo_started ──undone──▶ undone
//	                                            ▲ │  │
//	                                            └─┘  └─undo_failed──▶ stuck
//	                                    (again, noted)                   │
//	                                            ▲──────undo_started──────┘
const (
	StepPending     StepStatus = "pending"
	StepStarted     StepStatus = "started"
	StepSucceeded   StepStatus = "succeeded"
	StepFailed      StepStatus = "failed"
	StepUndoStarted StepStatus = "undo_started"
	StepUndone      StepStatus = "undone"
	StepStuck       StepStatus = "stuck"
)

// EventKind is the event of a record, about a step or, for the last three kinds, the whole op.
type EventKind string

// The kinds of records.
const (
	// EventStarted is written before Do may have any effect.
	EventStarted EventKind = "started"
	// EventNoted keeps a fact for a later Undo, or a repeated Do or Undo, before an effect
	// destroys it.
	EventNoted       EventKind = "noted"
	EventSucceeded   EventKind = "succeeded"
	EventFailed      EventKind = "failed"
	EventUndoStarted EventKind = "undo_started"
	EventUndone      EventKind = "undone"
	EventUndoFailed  EventKind = "undo_failed"

	// EventFinished ends the op: every step has succeeded, or every begun step is undone.
	EventFinished      EventKind = "finished"
	EventNeedsOperator EventKind = "needs_operator"
	EventResumed       EventKind = "resumed"
)

// Next is the transition table of a step. The runner uses it to run an op and to replay its
// records after a crash, so that an impossible journal is detected. It is pure. If e cannot follow
// s it returns an error, and the caller must stop.
func Next(s StepStatus, e EventKind) (StepStatus, error) {
	switch {
	case s == StepPending && e == EventStarted,
		s == StepStarted && (e == EventStarted || e == EventNoted):
		return StepStarted, nil
	case s == StepStarted && e == EventSucceeded:
		return StepSucceeded, nil
	case s == StepStarted && e == EventFailed:
		return StepFailed, nil
	case (s == StepSucceeded || s == StepFailed || s == StepUndoStarted || s == StepStuck) && e == EventUndoStarted:
		return StepUndoStarted, nil
	case s == StepUndoStarted && e == EventNoted:
		return StepUndoStarted, nil
	case s == StepUndoStarted && e == EventUndone:
		return StepUndone, nil
	case s == StepUndoStarted && e == EventUndoFailed:
		return StepStuck, nil
	}
	return s, fmt.Errorf("a step that is %s cannot become %q", s, e)
}

// State is the state of an op.
type State string

// The states of an op. Done and undone are final.
const (
	StateRunning       State = "running"
	StateUndoing       State = "undoing"
	StateDone          State = "done"
	StateUndone        State = "undone"
	StateNeedsOperator State = "needs_operator"
)

// Final reports whether the op is over.
func (s State) Final() bool { return s == StateDone || s == StateUndone }

// Settled reports whether the op is final or needs the operator.
func (s State) Settled() bool { return s.Final() || s == StateNeedsOperator }
