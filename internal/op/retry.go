// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"errors"
	"time"
)

// retrier decides what an error of a step means and spends the time until the
// next try. One is made per visit of a step: tries are counted across it.
type retrier struct {
	a *activeOp
	// ctx ends the pauses.
	ctx  context.Context
	step string
	// maxTries is how many tries an error of no type gets; 1 means that the first
	// one is final.
	maxTries int
	tries    int
	delay    backoff // where the error does not say how long
	// heard is how many wakes there had been when the last try began.
	heard int
	// waited is what it waited for last, and since when without anything else between.
	waited string
	since  time.Time
	// refused is since when the journal has refused its notes.
	refused time.Time
}

// begin is called before each try: a wake that comes from here on is news.
func (r *retrier) begin() { r.heard = r.a.r.wakes.heard() }

// succeeded is called when a try went well: what it had waited for is back, which
// may be news to others. Where nobody calls Wake it is the only news.
func (r *retrier) succeeded() {
	if r.waited != "" {
		r.a.r.wakes.wake(r.waited)
	}
}

// retry waits for the next try and returns true, or returns false: err is final
// or ctx has ended.
func (r *retrier) retry(err error) bool {
	var (
		wait    *waitError
		later   *retryError
		unknown *unknownError
	)
	switch {
	case errors.As(err, &unknown):
		return false
	case errors.Is(err, ErrJournal):
		r.log(err)
		if r.refused.IsZero() {
			r.refused = time.Now()
		}
		if time.Since(r.refused) >= leaveAfter && r.a.failsToLeave() {
			return false
		}
		return sleep(r.ctx, r.delay.next())
	case errors.As(err, &wait):
		return r.waitFor(wait.on, err)
	case errors.As(err, &later):
		return r.try(r.a.r.cfg.MaxTries, later.after, err)
	default:
		return r.try(r.maxTries, r.delay.next(), err)
	}
}

func (r *retrier) try(limit int, after time.Duration, err error) bool {
	r.tries, r.since = r.tries+1, time.Time{}
	if r.tries >= limit {
		return false
	}
	r.log(err)
	return sleep(r.ctx, after)
}

// waitFor waits until Wake(on), for WaitPoll at most. What was woken since the
// try began need not be waited for: the try may have been too early for it.
func (r *retrier) waitFor(on string, err error) bool {
	woken := r.a.r.wakes.on(on, r.heard)
	if r.waited != on || r.since.IsZero() {
		r.waited, r.since = on, r.a.r.cfg.Now()
	}
	r.log(err)
	r.a.setWaiting(waiting{on: on, since: r.since})
	defer r.a.setWaiting(waiting{})
	timer := time.NewTimer(r.a.r.cfg.WaitPoll)
	defer timer.Stop()
	select {
	case <-woken:
		return true
	case <-timer.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

func (r *retrier) log(err error) {
	r.a.r.cfg.Log.Warn("step is tried again", "op", r.a.op.ID, "step", r.step, "err", err)
}
