// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"fmt"
)

// Interrupt requests that an op be undone. It cancels the context of the running step with the
// cause, which becomes the op's failure. Nil means that the request was accepted. The op ends done
// anyway if the running step has happened and is the commit point or the last step; Wait returns
// the result. Interrupting an op that is being undone is no error. The request is not durable:
// after a crash the op goes on.
//
// Errors: ErrCommitted, ErrFinished, ErrParked, ErrNotFound.
func (r *Runner) Interrupt(id string, cause error) error {
	a := r.lookup(id)
	if a == nil {
		if _, err := r.cfg.Journal.Op(r.ctx, id); err != nil {
			return fmt.Errorf("interrupt op %s: %w", id, err)
		}
		return fmt.Errorf("interrupt op %s: %w", id, ErrFinished)
	}
	if err := a.mayInterrupt(); err != nil {
		return fmt.Errorf("interrupt op %s: %w", id, err)
	}
	a.interrupt(cause)
	return nil
}

func (a *activeOp) mayInterrupt() error {
	p := a.snapshot()
	switch {
	case a.isParked():
		return ErrParked
	case p.State.Final():
		return ErrFinished
	case p.Committed:
		return ErrCommitted
	default:
		return nil
	}
}

// Continue resumes a parked op at the operator's request: a step is observed before it is done
// again, and an Undo is tried again.
//
// Errors: ErrNotParked, ErrFinished, ErrNotFound, ErrJournal, ErrStopped, and ErrHistory if the
// op's records still cannot be followed.
func (r *Runner) Continue(ctx context.Context, id string) error {
	a := r.lookup(id)
	if a == nil {
		if _, err := r.cfg.Journal.Op(ctx, id); err != nil {
			return fmt.Errorf("continue op %s: %w", id, err)
		}
		return fmt.Errorf("continue op %s: %w", id, ErrFinished)
	}
	if !a.claim() {
		return fmt.Errorf("continue op %s: %w", id, ErrNotParked)
	}
	defer a.unclaim()
	if err := a.unpark(ctx); err != nil {
		return fmt.Errorf("continue op %s: %w", id, err)
	}
	if err := r.start(a); err != nil {
		return fmt.Errorf("continue op %s: %w", id, err)
	}
	return nil
}

// WhileParked calls f while an op is parked, and blocks Continue until f returns. The op keeps its
// keys, so no other op with one of them runs. Errors: ErrNotParked, and the error of f.
func (r *Runner) WhileParked(id string, f func() error) error {
	a := r.lookup(id)
	if a == nil || !a.claim() {
		return fmt.Errorf("act beside op %s: %w", id, ErrNotParked)
	}
	defer a.unclaim()
	return f()
}

// claim makes its caller the only writer for a parked op, or returns false: the op is not parked,
// or claimed already.
func (a *activeOp) claim() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claimed || !a.parkedLocked() {
		return false
	}
	a.claimed = true
	return true
}

func (a *activeOp) unclaim() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claimed = false
}

// unpark records that a parked op continues. The caller has claimed the op.
func (a *activeOp) unpark(ctx context.Context) error {
	if a.isBroken() != nil {
		over, err := a.readBack(ctx)
		switch {
		case err != nil:
			return journalError(err)
		case over:
			a.r.retire(a)
			return ErrFinished
		}
		if err := a.isBroken(); err != nil {
			return err
		}
	}
	if a.snapshot().State != StateNeedsOperator {
		return nil
	}
	return a.append(event{EventResumed, "", nil})
}

// Wake makes the ops that wait for this reason (see WaitFor) try again at once.
func (r *Runner) Wake(on string) { r.wakes.wake(on) }
