// SPDX-License-Identifier: Apache-2.0

// Package ratelimit bounds how often each of many callers acts, and counts refusals.
package ratelimit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limit bounds how often each caller acts. It is safe for concurrent use.
type Limit struct {
	every rate.Limit
	burst int

	mu      sync.Mutex
	callers map[string]*allowance
}

type allowance struct {
	limiter *rate.Limiter
	// refused counts the refusals since the caller was last allowed.
	refused int
}

// With manyCallers callers or more, a new caller makes the limit drop idle ones.
const manyCallers = 4096

// New returns a limit: every caller may act burst times at once, and further times at the rate of
// every.
func New(every rate.Limit, burst int) *Limit {
	return &Limit{every: every, burst: burst, callers: map[string]*allowance{}}
}

// Allow reports whether the caller may act now and, if so, the number of refusals since it was last
// allowed.
func (l *Limit) Allow(caller string, now time.Time) (ok bool, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.callers[caller]
	if a == nil {
		l.dropIdle(now)
		a = &allowance{limiter: rate.NewLimiter(l.every, l.burst)}
		l.callers[caller] = a
	}
	if !a.limiter.AllowN(now, 1) {
		a.refused++
		return false, 0
	}
	refused, a.refused = a.refused, 0
	return true, refused
}

func (l *Limit) dropIdle(now time.Time) {
	if len(l.callers) < manyCallers {
		return
	}
	for caller, a := range l.callers {
		if a.limiter.TokensAt(now) >= float64(l.burst) {
			delete(l.callers, caller)
		}
	}
}
