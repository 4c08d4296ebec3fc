// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"time"
)

// Backoff is the delay between the tries of one thing: First, then twice the last
// one each time, and never more than Max. With First equal to Max it is constant. It
// is not safe for concurrent use.
type Backoff struct {
	First, Max time.Duration

	last time.Duration
}

// Next returns how long to wait before the next try.
func (b *Backoff) Next() time.Duration {
	if b.last == 0 {
		b.last = b.First
	} else {
		b.last *= 2
	}
	b.last = min(b.last, b.Max)
	return b.last
}

// Reset makes the next delay First again: there was a success, or news.
func (b *Backoff) Reset() { b.last = 0 }

// Sleep waits for the next delay, or until ctx ends, which is an error: its cause.
func (b *Backoff) Sleep(ctx context.Context) error { return Sleep(ctx, b.Next()) }
