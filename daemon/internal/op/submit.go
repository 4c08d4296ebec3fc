// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Submit stores a new op and starts it. When it returns nil, the op survives a crash. If the
// runner stops at the same time, the op begins at the next start. Submitting the same op again is
// no error and has no effect: the op keeps its stored steps. A step may submit an op.
//
// Errors: ErrMismatch, ErrUnknownKind, ErrStopped, and ErrJournal. After ErrJournal the op may be
// stored or not: submit it again.
func (r *Runner) Submit(ctx context.Context, o Op) error {
	kind := r.kind(o.Kind)
	if kind == nil {
		return fmt.Errorf("submit op %s: %w %q", o.ID, ErrUnknownKind, o.Kind)
	}
	if len(o.Steps) == 0 {
		if kind.MustChoose {
			return fmt.Errorf("submit op %s: %w: no steps are chosen for %s", o.ID, ErrHistory, o.Kind)
		}
		o.Steps, o.Commit = kind.Refs(), kind.Commit
	}
	r.admit.Lock()
	defer r.admit.Unlock()
	if !r.enlist() {
		return fmt.Errorf("submit op %s: %w", o.ID, ErrStopped)
	}
	defer r.wg.Done()
	ctx, cancel := r.storing(ctx)
	defer cancel()
	o, err := r.cfg.Journal.Create(ctx, o)
	if err != nil {
		return fmt.Errorf("submit op %s: %w", o.ID, err)
	}
	if err := r.activate(ctx, o); err != nil && !errors.Is(err, ErrStopped) {
		r.activateLater(o)
		return fmt.Errorf("submit op %s: %w", o.ID, err)
	}
	return nil
}

const storeTimeout = 10 * time.Second

// storing returns a context for the calls that store an op. It ends storeTimeout after Stop, so
// that Stop waits for an op that is being stored, but not longer for a hanging journal.
func (r *Runner) storing(ctx context.Context) (bounded context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	unstop := context.AfterFunc(r.ctx, func() {
		expired := time.NewTimer(storeTimeout)
		defer expired.Stop()
		select {
		case <-expired.C:
			end(ErrStopped)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		unstop()
		end(nil)
	}
}

func (r *Runner) activateLater(o Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.halted {
		return
	}
	r.wg.Go(func() {
		for sleep(r.ctx, firstDelay) {
			r.admit.Lock()
			var err error
			if r.runs() {
				err = r.activate(r.ctx, o)
			}
			r.admit.Unlock()
			if err == nil || errors.Is(err, ErrStopped) {
				return
			}
		}
	})
}

// Resume starts every unfinished op of the journal. A parked op stays parked and keeps its keys.
// After an error Resume may be called again.
func (r *Runner) Resume(ctx context.Context) error {
	r.halting.Lock()
	defer r.halting.Unlock()
	r.admit.Lock()
	defer r.admit.Unlock()
	if !r.begin() {
		return fmt.Errorf("resume ops: %w", ErrStopped)
	}
	ops, err := r.cfg.Journal.Unfinished(ctx)
	if err != nil {
		return fmt.Errorf("resume ops: %w", err)
	}
	for _, o := range ops {
		if err := r.activate(ctx, o); err != nil {
			return fmt.Errorf("resume op %s: %w", o.ID, err)
		}
	}
	r.mu.Lock()
	r.whole = true
	r.mu.Unlock()
	return nil
}

// Stop ends the runner: it cancels the ops and waits until every goroutine and every Submit has
// ended, so that the next runner reads each stored op. It writes no record. The ops go on at the
// next start.
func (r *Runner) Stop() {
	r.mu.Lock()
	r.stopped = true
	r.cancel()
	r.mu.Unlock()
	r.wg.Wait()
}

// activate starts an op of the journal, unless it is active or finished. The caller holds admit.
func (r *Runner) activate(ctx context.Context, o Op) error {
	if r.lookup(o.ID) != nil {
		return nil
	}
	a := newActiveOp(r, o)
	if over, err := a.readBack(ctx); err != nil || over {
		a.cancel()
		return err
	}
	r.enter(a)
	if a.isParked() {
		r.cfg.Log.Error("op still waits for the operator", "op", o.ID)
		return nil
	}
	return r.start(a)
}

func (r *Runner) start(a *activeOp) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.halted || r.active[a.op.ID] != a { // Halt has dropped a
		return ErrStopped
	}
	r.wg.Go(a.run)
	return nil
}

// begin ends a halt. It returns false if the runner is stopped for good.
func (r *Runner) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.halted = false
	}
	return !r.stopped
}
