// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"errors"
	"time"
)

// retrier decides what an error of a step means, and sleeps until the next try. Each loop of tries
// has its own retrier.
type retrier struct {
	a    *activeOp
	ctx  context.Context
	step string
	// maxTries is the limit for errors that are neither Retry, WaitFor nor UnknownOutcome; 1 means
	// that the first is final.
	maxTries int
	tries    int
	delay    backoff // for errors without a time
	// heard is the count of wakes when the last try began.
	heard  int
	waited string
	since  time.Time
	// refused is when the journal began to refuse the step's notes.
	refused time.Time
}

// begin is called before each try: a wake during the try ends the wait after the try.
func (r *retrier) begin() { r.heard = r.a.r.wakes.heard() }

// succeeded is called when a try succeeds. After a wait it wakes the other ops with the same
// reason: for some reasons no other code calls Wake.
func (r *retrier) succeeded() {
	if r.waited != "" {
		r.a.r.wakes.wake(r.waited)
	}
}

// retry sleeps until the next try and returns true. It returns false if err is final or ctx has
// ended.
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

// waitFor waits until Wake(on), at most for WaitPoll. It returns at once if Wake(on) was called
// since the try began, perhaps after the try had read the state.
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
