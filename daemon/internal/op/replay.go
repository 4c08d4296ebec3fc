// SPDX-License-Identifier: Apache-2.0

package op

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Progress is an op's state according to its records. It shares no memory with the runner.
type Progress struct {
	// Steps are the statuses in the order of the plan.
	Steps []StepStatus
	// Current is the index of the step to do next, or to undo next if the op is being undone. It
	// is -1 if the op lacks only the finished record, or is over.
	Current   int
	State     State
	Committed bool
	// Outputs and Notes have the last output and note of each step, by its name.
	Outputs    map[string]json.RawMessage
	Notes      map[string]json.RawMessage
	Failure    *Failure
	FinishedAt time.Time
	ParkedAt   time.Time
	// Seq is the number of the last record, 0 without records.
	Seq int64

	last EventKind
	// cause is the failure that began the undoing; a later failure of an Undo does not replace it.
	cause *Failure
}

// Replay computes the progress of an op from its records. It is pure. It returns an error that
// wraps ErrHistory if a record cannot follow the previous ones, a number is missing, or the plan
// lacks a step. The caller must then call the operator and do nothing else to the op.
//
// Undoing goes backwards from the failed step and skips pending steps. A step with nil Undo is
// recorded as undone too, so that a finished history accounts for each step that was begun.
func Replay(plan *Plan, records []Record) (Progress, error) {
	p := Progress{
		Steps:   slices.Repeat([]StepStatus{StepPending}, len(plan.Steps)),
		State:   StateRunning,
		Outputs: map[string]json.RawMessage{},
		Notes:   map[string]json.RawMessage{},
	}
	for _, r := range records {
		if err := p.apply(plan, r); err != nil {
			return Progress{}, fmt.Errorf("replay record %d: %w: %w", r.Seq, ErrHistory, err)
		}
	}
	return p, nil
}

func (p *Progress) after(plan *Plan, r Record) (Progress, error) {
	q := p.clone()
	if err := q.apply(plan, r); err != nil {
		return Progress{}, fmt.Errorf("record %d: %w: %w", r.Seq, ErrHistory, err)
	}
	return q, nil
}

func (p *Progress) clone() Progress {
	q := *p
	q.Steps = slices.Clone(p.Steps)
	q.Outputs = maps.Clone(p.Outputs)
	q.Notes = maps.Clone(p.Notes)
	return q
}

func (p *Progress) begun() bool {
	return slices.ContainsFunc(p.Steps, func(s StepStatus) bool { return s != StepPending })
}

func (p *Progress) apply(plan *Plan, r Record) error {
	if r.Seq != p.Seq+1 {
		return fmt.Errorf("it has number %d where %d is due", r.Seq, p.Seq+1)
	}
	if p.State.Final() {
		return fmt.Errorf("%q follows the end of the op", r.Kind)
	}
	var err error
	switch r.Kind {
	case EventFinished, EventNeedsOperator, EventResumed:
		err = p.applyToOp(r)
	case EventStarted, EventNoted, EventSucceeded, EventFailed, EventUndoStarted, EventUndone, EventUndoFailed:
		err = p.applyToStep(plan, r)
	default:
		err = fmt.Errorf("%q is no kind of record", r.Kind)
	}
	if err != nil {
		return err
	}
	p.Seq, p.last = r.Seq, r.Kind
	return nil
}

func (p *Progress) applyToOp(r Record) error {
	if r.Step != "" {
		return fmt.Errorf("%q is of the whole op, not of step %q", r.Kind, r.Step)
	}
	if parked := p.State == StateNeedsOperator; parked != (r.Kind == EventResumed) {
		return fmt.Errorf("%q cannot follow when the op is %s", r.Kind, p.State)
	}
	switch r.Kind {
	case EventNeedsOperator:
		p.State, p.ParkedAt = StateNeedsOperator, r.At
		return decodeFailure(r, &p.Failure)
	case EventResumed:
		p.State, p.Failure, p.ParkedAt = p.direction(), p.cause, time.Time{}
		return nil
	default:
		return p.finish(r)
	}
}

func (p *Progress) finish(r Record) error {
	if p.Current != -1 && p.begun() {
		return fmt.Errorf("the op is not at its end: its step %d is %s", p.Current+1, p.Steps[p.Current])
	}
	undone := p.State == StateUndoing || !p.begun()
	p.Current, p.FinishedAt = -1, r.At
	if !undone {
		p.State = StateDone
		return nil
	}
	p.State = StateUndone
	return decodeFailure(r, &p.Failure)
}

func (p *Progress) applyToStep(plan *Plan, r Record) error {
	i := plan.index(r.Step)
	switch {
	case i < 0:
		return fmt.Errorf("plan %s has no step %q", plan.Kind, r.Step)
	case p.State == StateNeedsOperator:
		return fmt.Errorf("%q of step %s while the op waits for the operator", r.Kind, r.Step)
	case i != p.Current:
		return fmt.Errorf("%q of step %s, which is not its turn", r.Kind, r.Step)
	case r.Kind == EventFailed && p.Committed:
		return fmt.Errorf("step %s failed behind the commit point", r.Step)
	case r.Kind == EventUndoStarted && p.State != StateUndoing:
		return fmt.Errorf("step %s is undone although nothing failed", r.Step)
	}
	status, err := Next(p.Steps[i], r.Kind)
	if err != nil {
		return fmt.Errorf("step %s: %w", r.Step, err)
	}
	p.Steps[i] = status
	switch r.Kind {
	case EventNoted:
		p.Notes[r.Step] = r.Data
	case EventSucceeded:
		if len(r.Data) > 0 {
			p.Outputs[r.Step] = r.Data
		}
		p.Committed = p.Committed || r.Step == plan.Commit
	case EventFailed:
		if err := decodeFailure(r, &p.cause); err != nil {
			return err
		}
		p.Failure = p.cause
	case EventUndoFailed:
		if err := decodeFailure(r, &p.Failure); err != nil {
			return err
		}
	default:
	}
	p.State = p.direction()
	p.Current = p.next()
	return nil
}

func (p *Progress) direction() State {
	for _, s := range p.Steps {
		if s != StepPending && s != StepStarted && s != StepSucceeded {
			return StateUndoing
		}
	}
	return StateRunning
}

// next returns the next step in the op's direction, or -1.
func (p *Progress) next() int {
	if p.State != StateUndoing {
		return slices.IndexFunc(p.Steps, func(s StepStatus) bool { return s != StepSucceeded })
	}
	for i, s := range slices.Backward(p.Steps) {
		if s != StepPending && s != StepUndone {
			return i
		}
	}
	return -1
}

func decodeFailure(r Record, into **Failure) error {
	var f Failure
	if err := json.Unmarshal(r.Data, &f); err != nil {
		return fmt.Errorf("decode the failure in %q: %w", r.Kind, err)
	}
	*into = &f
	return nil
}
