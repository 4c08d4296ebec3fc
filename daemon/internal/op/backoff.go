// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"time"
)

// The delays between tries. The first is short, since the guest of a migration may be paused.
const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = 10 * time.Second
)

// backoff is the delay before the next try. It doubles with each try. backoff and sleep duplicate
// package retry, since op imports the standard library only.
type backoff struct{ last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, firstDelay), maxDelay)
	return b.last
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
