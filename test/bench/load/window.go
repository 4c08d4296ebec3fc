// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"time"
)

// warmUp is not measured: connections and caches get warm in it.
const warmUp = 2 * time.Second

// Window is when a measurement counts.
type Window struct{ Begin, End time.Time }

// NewWindow returns a window of that length that begins after a time to get warm.
func NewWindow(length time.Duration) Window {
	begin := time.Now().Add(warmUp)
	return Window{begin, begin.Add(length)}
}

func (w Window) has(at time.Time) bool { return !at.Before(w.Begin) && at.Before(w.End) }

// Until waits for a moment. Its error is the cause for which ctx ended before.
func Until(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
