// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Status is where an op stands, for those who look from outside.
type Status struct {
	Op    Op
	State State
	// Step is the step that is being done or undone, empty if there is none.
	Step string
	// Committed: the commit point is behind, the op cannot be interrupted.
	Committed bool
	// Waiting is what the op waits for (see WaitFor), "turn" while another op
	// has one of its keys, empty if it does not wait. WaitingSince is for people:
	// when it began to, the tries in between counted as waiting.
	Waiting      string
	WaitingSince time.Time
	// Behind is the op that has its key, while it waits for its turn; empty if that
	// is a TryLock.
	Behind string
	// Failure is why the op is being undone, was undone or is parked, or why
	// it stands still: the journal takes no record.
	Failure *Failure
	// FinishedAt is zero until the op is done or undone.
	FinishedAt time.Time
	// Outputs are what the steps that succeeded left, by step name.
	Outputs map[string]json.RawMessage
}

// Status returns where an op stands, be it running, parked or finished.
// Errors: ErrNotFound, ErrJournal.
func (r *Runner) Status(ctx context.Context, id string) (Status, error) {
	if a := r.lookup(id); a != nil {
		st, _ := a.status()
		return st, nil
	}
	o, err := r.cfg.Journal.Op(ctx, id)
	if err != nil {
		return Status{}, fmt.Errorf("look up op %s: %w", id, err)
	}
	records, err := r.cfg.Journal.Records(ctx, id)
	if err != nil {
		return Status{}, fmt.Errorf("look up op %s: %w", id, err)
	}
	return r.statusFrom(o, records), nil
}

// Active returns where the ops stand that are not finished, in no order. It does
// not touch the journal.
func (r *Runner) Active() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Status, 0, len(r.active))
	for _, a := range r.active {
		st, _ := a.status()
		all = append(all, st)
	}
	return all
}

// Wait returns the status of an op once it is done, undone or parked. Its errors are those
// of Status, ErrStopped, and the error of ctx.
func (r *Runner) Wait(ctx context.Context, id string) (Status, error) {
	a := r.lookup(id)
	if a == nil {
		return r.waitInJournal(ctx, id)
	}
	for {
		st, changed := a.status()
		if st.State.Settled() {
			return st, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return st, fmt.Errorf("wait for op %s: %w", id, context.Cause(ctx))
		case <-a.ctx.Done():
			if st, _ = a.status(); st.State.Settled() {
				return st, nil
			}
			return st, fmt.Errorf("wait for op %s: %w", id, ErrStopped)
		}
	}
}

// waitInJournal answers for an op that is not active. Unless it is finished
// nothing here will ever move it.
func (r *Runner) waitInJournal(ctx context.Context, id string) (Status, error) {
	st, err := r.Status(ctx, id)
	if err == nil && !st.State.Settled() {
		return st, fmt.Errorf("wait for op %s: it was not resumed: %w", id, ErrStopped)
	}
	return st, err
}

// status returns a picture of the op and a channel that is closed when it is no
// longer true.
func (a *activeOp) status() (Status, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := statusOf(a.op, a.plan, a.progress)
	st.Waiting, st.WaitingSince, st.Behind = a.waiting.on, a.waiting.since, a.waiting.behind
	describe := a.r.cfg.Describe
	switch {
	case a.broken != nil:
		f := describe(a.broken)
		st.State, st.Failure = StateNeedsOperator, &f
	case a.trouble != nil:
		f := describe(a.trouble)
		st.Failure = &f
	}
	return st, a.changed
}

// statusFrom computes the status of an op that is not active.
func (r *Runner) statusFrom(o Op, records []Record) Status {
	plan := r.plan(o.Kind)
	err := fmt.Errorf("%w: %w %q", ErrHistory, ErrUnknownKind, o.Kind)
	if plan != nil {
		var p Progress
		if p, err = Replay(plan, records); err == nil {
			return statusOf(o, plan, p)
		}
	}
	if n := len(records); n > 0 && records[n-1].Kind == EventFinished {
		return statusOfOld(o, records[n-1])
	}
	f := r.cfg.Describe(err)
	return Status{Op: o, State: StateNeedsOperator, Failure: &f}
}

func statusOf(o Op, plan *Plan, p Progress) Status {
	st := Status{
		Op: o, State: p.State, Committed: p.Committed, Failure: p.Failure,
		FinishedAt: p.FinishedAt, Outputs: maps.Clone(p.Outputs),
	}
	if plan != nil && !p.State.Final() && p.Current >= 0 {
		st.Step = plan.Steps[p.Current].Name
	}
	return st
}

// statusOfOld reads the end of an op whose plan has changed since: its last
// record says enough.
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
