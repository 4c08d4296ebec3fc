// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"fmt"
)

// Status returns the status of any op. Errors: ErrNotFound, ErrJournal.
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

// Active returns the status of every unfinished op, in no order. It does not read the journal.
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

// Wait returns the status of an op once it is done, undone or parked. Errors: as for Status,
// ErrStopped, and the error of ctx.
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

// waitInJournal is Wait for an op that is not active: this runner does not continue it.
func (r *Runner) waitInJournal(ctx context.Context, id string) (Status, error) {
	st, err := r.Status(ctx, id)
	if err == nil && !st.State.Settled() {
		return st, fmt.Errorf("wait for op %s: it was not resumed: %w", id, ErrStopped)
	}
	return st, err
}

func (r *Runner) statusFrom(o Op, records []Record) Status {
	plan, err := r.plan(&o)
	if err == nil {
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
