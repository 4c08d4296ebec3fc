// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"time"
)

// Backoff is the delay between tries. It begins with First and doubles each time, up to Max. It is
// not safe for concurrent use.
type Backoff struct {
	First, Max time.Duration

	last time.Duration
}

// Next returns the delay before the next try.
func (b *Backoff) Next() time.Duration {
	if b.last == 0 {
		b.last = b.First
	} else {
		b.last *= 2
	}
	b.last = min(b.last, b.Max)
	return b.last
}

// Reset sets the next delay to First.
func (b *Backoff) Reset() { b.last = 0 }

// Sleep waits for the next delay. If ctx ends first, it returns the cause.
func (b *Backoff) Sleep(ctx context.Context) error { return Sleep(ctx, b.Next()) }
