// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"fmt"
)

// Halt stops all ops until Resume: when it returns none is at work, none can be
// submitted, and all go on from the journal as after a crash. An op that is in a
// critical section (Step.Critical) comes to the end of it first.
func (r *Runner) Halt() {
	r.halting.Lock()
	defer r.halting.Unlock()
	r.mu.Lock()
	r.halted, r.whole = true, false
	for _, a := range r.active {
		a.halt()
	}
	r.mu.Unlock()
	r.wg.Wait()
	r.admit.Lock() // what was being submitted is stored, and taken up by Resume
	defer r.admit.Unlock()
	r.mu.Lock()
	r.active, r.queue = map[string]*activeOp{}, newKeyedQueue()
	r.mu.Unlock()
}

// FinishCritical takes up those ops of the journal that a crash has left in a critical
// section. They come to its end, and stand still there. It is for a runner that begins
// halted: call it between Halt and Resume, at most once.
func (r *Runner) FinishCritical(ctx context.Context) error {
	r.halting.Lock()
	defer r.halting.Unlock()
	r.admit.Lock()
	defer r.admit.Unlock()
	ops, err := r.cfg.Journal.Unfinished(ctx)
	if err != nil {
		return fmt.Errorf("finish critical sections: %w", err)
	}
	for _, o := range ops {
		records, err := r.cfg.Journal.Records(ctx, o.ID)
		if err != nil {
			return fmt.Errorf("finish the critical section of op %s: %w", o.ID, err)
		}
		a := newActiveOp(r, o)
		a.replay(records)
		a.halt()
		if a.isParked() || a.stopping() {
			continue
		}
		r.enter(a)
		r.mu.Lock()
		if !r.stopped {
			r.wg.Go(a.run)
		}
		r.mu.Unlock()
	}
	return nil
}
