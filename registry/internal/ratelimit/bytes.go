// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"maps"
	"sync"
	"time"
)

// Bytes bounds the bytes that each caller uses. A request's cost is known only afterwards, so a
// caller with any budget may overdraw it. It is safe for concurrent use.
type Bytes struct {
	perSecond, burst float64

	mu      sync.Mutex
	callers map[string]*account
}

type account struct {
	left float64
	at   time.Time
}

// NewBytes returns a Bytes: every caller starts with burst bytes and regains perSecond bytes per
// second.
func NewBytes(perSecond, burst int) *Bytes {
	return &Bytes{perSecond: float64(perSecond), burst: float64(burst), callers: map[string]*account{}}
}

// Allow reports whether the caller's budget is positive.
func (b *Bytes) Allow(caller string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.settled(caller, now).left > 0
}

// Spend subtracts used bytes from the caller's budget.
func (b *Bytes) Spend(caller string, bytes int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled(caller, now).left -= float64(bytes)
}

func (b *Bytes) settled(caller string, now time.Time) *account {
	a := b.callers[caller]
	if a == nil {
		b.dropIdle(now)
		a = &account{left: b.burst, at: now}
		b.callers[caller] = a
	}
	if elapsed := now.Sub(a.at); elapsed > 0 {
		a.left, a.at = b.leftOf(a, now), now
	}
	return a
}

func (b *Bytes) leftOf(a *account, now time.Time) float64 {
	return min(b.burst, a.left+max(0, now.Sub(a.at).Seconds())*b.perSecond)
}

func (b *Bytes) dropIdle(now time.Time) {
	if len(b.callers) < manyCallers {
		return
	}
	maps.DeleteFunc(b.callers, func(_ string, a *account) bool { return b.leftOf(a, now) >= b.burst })
}
