// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Submit stores a new op and starts it. When it returns nil, the op survives a crash; if
// the runner is stopped at the same time, the op begins at the next start. To submit the
// same op again is no error and does not start it twice. A step may submit an op. Errors:
// ErrMismatch, ErrUnknownKind, ErrStopped, and ErrJournal. After ErrJournal the op may have
// been stored or not: submit it again.
func (r *Runner) Submit(ctx context.Context, o Op) error {
	if r.plan(o.Kind) == nil {
		return fmt.Errorf("submit op %s: %w %q", o.ID, ErrUnknownKind, o.Kind)
	}
	r.admit.Lock()
	defer r.admit.Unlock()
	if !r.enlist() {
		return fmt.Errorf("submit op %s: %w", o.ID, ErrStopped)
	}
	defer r.wg.Done()
	ctx, cancel := r.storing(ctx)
	defer cancel()
	if err := r.cfg.Journal.Create(ctx, o); err != nil {
		return fmt.Errorf("submit op %s: %w", o.ID, err)
	}
	if err := r.activate(ctx, o); err != nil && !errors.Is(err, ErrStopped) {
		r.activateLater(o)
		return fmt.Errorf("submit op %s: %w", o.ID, err)
	}
	return nil
}

// storeTimeout is how long Stop waits for the journal to take an op.
const storeTimeout = 10 * time.Second

// storing returns a context for the calls that store an op. It ends storeTimeout after Stop: what
// is being stored is waited for, and a journal that hangs does not keep the daemon from its end.
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

// activateLater takes up an op that is stored, and whose records cannot be read now:
// else it would stand in the journal as one that runs, and nobody would run it.
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

// Resume starts every op of the journal that is not finished. An op that waits for the
// operator goes on waiting and keeps its keys. If Resume returns an error it may be called
// again.
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

// Stop ends the runner: it cancels what is running and waits until every goroutine and every
// Submit has ended, so that the next runner reads each op that is stored. It writes no record,
// since a shutdown is not a failure. The ops go on at the next start.
func (r *Runner) Stop() {
	r.mu.Lock()
	r.stopped = true
	r.cancel()
	r.mu.Unlock()
	r.wg.Wait()
}

// activate takes an op up that the journal holds, unless it is active already
// or finished. The caller holds admit.
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

// start runs the goroutine of an op, which must not have one.
func (r *Runner) start(a *activeOp) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.halted || r.active[a.op.ID] != a { // a of before a halt is nobody's any more
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
