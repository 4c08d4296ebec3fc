// SPDX-License-Identifier: Apache-2.0

// Package retry is how to wait for what may come right by itself: a sleep that ends
// with its context, a back-off, retries and polls. It imports the standard library
// only, and must not know what is tried or what an error means: its callers say which
// errors are worth another try.
package retry

import (
	"context"
	"math"
	"time"
)

// Forever is a bound that is never reached.
const Forever time.Duration = math.MaxInt64

// Sleep waits for d, or until ctx ends, which is an error: its cause.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
