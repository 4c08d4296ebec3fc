// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"fmt"
)

// Interrupt asks to undo an op. It cancels the context of the running step with the cause,
// which becomes the op's failure. Nil says that this was asked for, not that the op will be
// undone: if a step turns out to have happened and was the commit point or the last step,
// the op ends done. Wait returns which. It is no error if the op is being undone already.
// Errors: ErrCommitted, ErrFinished, ErrParked, ErrNotFound. The request is not durable:
// after a crash the op goes on as if it had not been made.
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

// Continue lets a parked op go on from where it stopped, on the operator's word: a step is
// observed before it is done again, and an Undo is tried again. Errors: ErrNotParked,
// ErrFinished, ErrNotFound, ErrJournal, ErrStopped, and ErrHistory if the op is parked
// because of its records and they still cannot be followed.
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

// WhileParked calls f while an op is parked, and keeps it from being continued until f returns.
// The op has its turn all the while, so no other op with one of its keys is at work. Errors:
// ErrNotParked, and that of f.
func (r *Runner) WhileParked(id string, f func() error) error {
	a := r.lookup(id)
	if a == nil || !a.claim() {
		return fmt.Errorf("act beside op %s: %w", id, ErrNotParked)
	}
	defer a.unclaim()
	return f()
}

// claim makes its caller the only one who may write for a parked op. It returns
// false if the op is not parked or somebody else is at it.
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

// unpark makes a parked op ready to be started. The caller has claimed it.
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

// Wake has the ops that wait for this (see WaitFor) try again at once.
func (r *Runner) Wake(on string) { r.wakes.wake(on) }
