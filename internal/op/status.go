// SPDX-License-Identifier: Apache-2.0

package op

import "fmt"

// StepStatus is where one step of an op stands. It is never stored: it is what
// Next makes of the step's records.
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

// EventKind is what a record says happened to a step or, for the last three,
// to the op as a whole.
type EventKind string

// The kinds of records.
const (
	// EventStarted is written before Do may have any effect.
	EventStarted EventKind = "started"
	// EventNoted keeps a fact that a later Undo, or a resumed Do or Undo, needs, written
	// before the effect that would destroy it.
	EventNoted       EventKind = "noted"
	EventSucceeded   EventKind = "succeeded"
	EventFailed      EventKind = "failed"
	EventUndoStarted EventKind = "undo_started"
	EventUndone      EventKind = "undone"
	EventUndoFailed  EventKind = "undo_failed"

	// EventFinished ends the op: every step succeeded, or every step that was
	// begun is undone.
	EventFinished EventKind = "finished"
	// EventNeedsOperator parks the op until a person says go on.
	EventNeedsOperator EventKind = "needs_operator"
	// EventResumed says that the operator has called Continue.
	EventResumed EventKind = "resumed"
)

// Next is the transition table of a step. It is used both to run an op and to replay its
// records after a crash, so that an impossible journal is found out. It is pure. An event
// that cannot follow a status is an error, and the caller must stop.
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

// State is where an op as a whole stands.
type State string

// The states of an op. Done and undone are final.
const (
	StateRunning       State = "running"
	StateUndoing       State = "undoing"
	StateDone          State = "done"
	StateUndone        State = "undone"
	StateNeedsOperator State = "needs_operator"
)

// Final reports whether nothing more will happen to an op in this state.
func (s State) Final() bool { return s == StateDone || s == StateUndone }

// Settled reports whether the op will not move any more by itself: it is final, or needs the
// operator.
func (s State) Settled() bool { return s.Final() || s == StateNeedsOperator }
