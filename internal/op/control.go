// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"fmt"
)

// Interrupt asks for an op to be undone. The step that is running gets its
// context cancelled with the cause, which becomes the op's failure. Nil means
// that it was asked, not that it will be so: a step that turns out to have
// happened counts, and if that was the commit point or the last step the op is
// done. Wait tells. An op that is being undone already is no error. Errors:
// ErrCommitted, ErrFinished, ErrParked, ErrNotFound. A request is not
// durable: after a crash the op goes on as if it had not been made.
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

// Continue is the operator's word that an op which is parked may go on from
// where it stopped: a step is observed before it is done again, an Undo is tried
// again. Errors: ErrNotParked, ErrFinished, ErrNotFound, ErrJournal, ErrStopped,
// and ErrHistory if the op is parked because of its records and they still
// cannot be followed.
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
	return a.append(EventResumed, "", nil)
}

// Wake makes the ops that wait for this (see WaitFor) try at once.
func (r *Runner) Wake(on string) { r.wakes.wake(on) }
