// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rateLimit bounds how often each of many callers does something. Safe for concurrent use.
type rateLimit struct {
	every rate.Limit
	burst int

	mu      sync.Mutex
	callers map[string]*allowance
}

// allowance is what one caller may do.
type allowance struct {
	limiter *rate.Limiter
	// refused is how often the caller was refused since it was last allowed.
	refused int
}

// manyCallers is when callers that have been quiet are forgotten.
const manyCallers = 4096

func newRateLimit(every rate.Limit, burst int) *rateLimit {
	return &rateLimit{every: every, burst: burst, callers: map[string]*allowance{}}
}

// allow says whether the caller may go on now, and if so how often it was refused since
// it last might.
func (r *rateLimit) allow(caller string, now time.Time) (ok bool, refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.callers[caller]
	if a == nil {
		r.dropIdle(now)
		a = &allowance{limiter: rate.NewLimiter(r.every, r.burst)}
		r.callers[caller] = a
	}
	if !a.limiter.AllowN(now, 1) {
		a.refused++
		return false, 0
	}
	refused, a.refused = a.refused, 0
	return true, refused
}

func (r *rateLimit) dropIdle(now time.Time) {
	if len(r.callers) < manyCallers {
		return
	}
	for caller, a := range r.callers {
		if a.limiter.TokensAt(now) >= float64(r.burst) {
			delete(r.callers, caller)
		}
	}
}
