// SPDX-License-Identifier: Apache-2.0

// Package retry waits for temporary errors to pass: a sleep that ends with its context, a
// back-off, retries and polls. It imports the standard library only.
package retry

import (
	"context"
	"math"
	"time"
)

// Forever is an unlimited time.
const Forever time.Duration = math.MaxInt64

// Sleep waits for d. If ctx ends first, it returns the cause.
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
