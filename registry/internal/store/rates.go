// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rates bounds how often each of many callers does something. Safe for concurrent use.
type rates struct {
	every rate.Limit
	burst int

	mu sync.Mutex
	by map[string]*allowance
}

// allowance is what one caller may do.
type allowance struct {
	limiter *rate.Limiter
	// refused is how often the caller was refused since it was last allowed.
	refused int
}

// manyCallers is when callers that have been quiet are forgotten.
const manyCallers = 4096

func newRates(every rate.Limit, burst int) *rates {
	return &rates{every: every, burst: burst, by: map[string]*allowance{}}
}

// take says whether the caller may go on now, and if so how often it was refused since
// it last might.
func (r *rates) take(caller string, now time.Time) (ok bool, refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.by[caller]
	if a == nil {
		r.forgetQuiet(now)
		a = &allowance{limiter: rate.NewLimiter(r.every, r.burst)}
		r.by[caller] = a
	}
	if !a.limiter.AllowN(now, 1) {
		a.refused++
		return false, 0
	}
	refused, a.refused = a.refused, 0
	return true, refused
}

func (r *rates) forgetQuiet(now time.Time) {
	if len(r.by) < manyCallers {
		return
	}
	for caller, a := range r.by {
		if a.limiter.TokensAt(now) >= float64(r.burst) {
			delete(r.by, caller)
		}
	}
}
