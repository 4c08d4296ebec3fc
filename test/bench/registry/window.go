// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// warmUp is not measured: connections and caches get warm in it.
const warmUp = 2 * time.Second

// window is when a measurement counts.
type window struct{ begin, end time.Time }

func newWindow(length time.Duration) window {
	begin := time.Now().Add(warmUp)
	return window{begin, begin.Add(length)}
}

func (w window) has(at time.Time) bool { return !at.Before(w.begin) && at.Before(w.end) }

func until(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
