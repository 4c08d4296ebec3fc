// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"fmt"
)

// Halt stops all ops until Resume. When it returns, no op runs and none can be submitted. Resume
// continues the ops from the journal, as after a crash. An op in a critical section (Step.Critical)
// finishes the section first.
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
	r.admit.Lock() // an op being submitted is stored by now; Resume starts it
	defer r.admit.Unlock()
	r.mu.Lock()
	r.active, r.queue = map[string]*activeOp{}, newKeyedQueue()
	r.mu.Unlock()
}

// FinishCritical finishes the critical sections that a crash has interrupted. The ops stop after
// their section. It is for a runner that begins halted: call it at most once, between Halt and
// Resume.
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
