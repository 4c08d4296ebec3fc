// SPDX-License-Identifier: Apache-2.0

package op

import "context"

func newActiveOp(r *Runner, o Op) *activeOp {
	a := &activeOp{r: r, op: o, ticket: &ticket{o.ID, o.Keys}, changed: make(chan struct{})}
	a.plan, a.noPlan = r.plan(&o)
	a.ctx, a.cancel = context.WithCancel(r.cfg.Context(r.ctx, o.ID))
	a.forward, a.interrupt = context.WithCancelCause(a.ctx)
	return a
}

// stepContext returns the context for a Do. An interruption before the commit point cancels it.
func (a *activeOp) stepContext() context.Context {
	if a.snapshot().Committed {
		return a.ctx
	}
	return a.forward
}

// interruption returns the cause of an Interrupt. It returns nil without one, after the commit
// point, and when the runner stops. It reads the cause before it looks for a stop, because Stop
// cancels forward too.
func (a *activeOp) interruption() error {
	cause := context.Cause(a.forward)
	if a.stopping() || a.snapshot().Committed {
		return nil
	}
	return cause
}

func (a *activeOp) stopping() bool { return a.ctx.Err() != nil }

func (a *activeOp) fault(step *Step, moment string) {
	a.r.cfg.FaultPoint(faultName(a.op.Kind, step.Name, moment))
}

func (a *activeOp) snapshot() Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.progress
}

func (a *activeOp) isBroken() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.broken
}

func (a *activeOp) isParked() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.parkedLocked()
}

func (a *activeOp) parkedLocked() bool {
	return a.broken != nil || a.progress.State == StateNeedsOperator
}

func (a *activeOp) setWaiting(w waiting) {
	a.mu.Lock()
	same := a.waiting == w
	a.waiting = w
	if !same {
		a.announce()
	}
	a.mu.Unlock()
	if !same {
		a.r.changed(a.op.ID)
	}
}

func (a *activeOp) setBroken(err error) {
	a.mu.Lock()
	a.broken = err
	a.announce()
	a.mu.Unlock()
	a.r.cfg.Log.Error("op waits for the operator", "op", a.op.ID, "err", err)
}

// announce wakes the waiters for a change. The caller holds mu.
func (a *activeOp) announce() {
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *activeOp) halt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.halted = true
	a.haltLocked()
}

// haltLocked cancels the op's context if the op is halted and outside critical sections. Call it
// after each change of the progress. The caller holds mu.
func (a *activeOp) haltLocked() {
	if a.halted && !a.criticalLocked() {
		a.cancel()
	}
}

func (a *activeOp) criticalLocked() bool {
	p := &a.progress
	if a.plan == nil || a.parkedLocked() || p.Current < 0 || p.Current >= len(p.Steps) || !a.plan.Steps[p.Current].Critical {
		return false
	}
	entering := p.State == StateRunning && p.Steps[p.Current] == StepPending && (p.Current == 0 || !a.plan.Steps[p.Current-1].Critical)
	return !entering
}

// status also returns a channel that is closed when the status changes.
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
