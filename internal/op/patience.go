// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"errors"
	"sync"
	"time"
)

// patience decides what an error of a step means and spends the time until the
// next try. One is made per visit of a step: tries are counted across it.
type patience struct {
	a *activeOp
	// ctx ends the pauses.
	ctx  context.Context
	step string
	// insist is how many tries an error of no type gets; 1 means that the first
	// one is final.
	insist int
	tries  int
	delay  backoff // where the error does not say how long
	// heard is how many wakes there had been when the last try began.
	heard int
	// waited is what it waited for last, and since when without anything else between.
	waited string
	since  time.Time
}

// begin is called before each try: a wake that comes from here on is news.
func (p *patience) begin() { p.heard = p.a.r.wakes.heard() }

// through is called when a try went well: what it had waited for is back, which
// may be news to others. Where nobody calls Wake it is the only news.
func (p *patience) through() {
	if p.waited != "" {
		p.a.r.wakes.wake(p.waited)
	}
}

// bear waits for the next try and returns true, or returns false: err is final
// or ctx has ended.
func (p *patience) bear(err error) bool {
	var (
		wait    *waitError
		retry   *retryError
		unknown *unknownError
	)
	switch {
	case errors.As(err, &unknown):
		return false
	case errors.Is(err, ErrJournal):
		p.log(err)
		return sleep(p.ctx, p.delay.next())
	case errors.As(err, &wait):
		return p.waitFor(wait.on, err)
	case errors.As(err, &retry):
		return p.try(p.a.r.cfg.MaxTries, retry.after, err)
	default:
		return p.try(p.insist, p.delay.next(), err)
	}
}

func (p *patience) try(limit int, after time.Duration, err error) bool {
	p.tries, p.since = p.tries+1, time.Time{}
	if p.tries >= limit {
		return false
	}
	p.log(err)
	return sleep(p.ctx, after)
}

// waitFor waits until Wake(on), for WaitPoll at most. What was woken since the
// try began need not be waited for: the try may have been too early for it.
func (p *patience) waitFor(on string, err error) bool {
	woken := p.a.r.wakes.on(on, p.heard)
	if p.waited != on || p.since.IsZero() {
		p.waited, p.since = on, p.a.r.cfg.Now()
	}
	p.log(err)
	p.a.setWaiting(waiting{on: on, since: p.since})
	defer p.a.setWaiting(waiting{})
	timer := time.NewTimer(p.a.r.cfg.WaitPoll)
	defer timer.Stop()
	select {
	case <-woken:
		return true
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

func (p *patience) log(err error) {
	p.a.r.cfg.Log.Warn("step is tried again", "op", p.a.op.ID, "step", p.step, "err", err)
}

// wakes counts the wakes, and holds those who wait, by reason.
type wakes struct {
	mu      sync.Mutex
	count   int
	last    map[string]int // what count was at the last wake for the reason
	waiting map[string]chan struct{}
}

func newWakes() *wakes {
	return &wakes{last: map[string]int{}, waiting: map[string]chan struct{}{}}
}

// heard is how many wakes there have been.
func (w *wakes) heard() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// on returns a channel that is closed by the first wake for this reason after so
// many of all reasons. It may be closed already.
func (w *wakes) on(reason string, heard int) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last[reason] > heard {
		woken := make(chan struct{})
		close(woken)
		return woken
	}
	if w.waiting[reason] == nil {
		w.waiting[reason] = make(chan struct{})
	}
	return w.waiting[reason]
}

func (w *wakes) wake(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	w.last[reason] = w.count
	if c := w.waiting[reason]; c != nil {
		close(c)
		delete(w.waiting, reason)
	}
}
