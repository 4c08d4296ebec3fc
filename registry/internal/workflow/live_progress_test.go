// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"testing"
	"time"
)

func TestRoundsThatLeaveHardlyLessAreCountedAndThenTheGuestsAreHeldBack(t *testing.T) {
	for _, mayThrottle := range []bool{false, true} {
		l := Live{Hosts: make([]LiveHost, 2)}
		for n, step := range []struct {
			dirty           int64
			slow, throttled int
		}{
			{1000, 0, 0}, // the whole copy
			{1000, 1, 0},
			{500, 0, 0}, // it made progress
			{450, 1, 0},
			{440, 2, 0},
			{440, 3, 1},
			{200, 0, 2}, // once throttled, more with each round
			{190, 1, 3},
		} {
			if !mayThrottle {
				step.throttled = 0
			}
			l.Hosts[0].Dirty, l.Hosts[1].Dirty = step.dirty/2, step.dirty/2
			l.Left, l.Slow, l.Throttled = l.progress(mayThrottle)
			if l.Left != step.dirty || l.Slow != step.slow || l.Throttled != step.throttled {
				t.Errorf("throttle %t, round %d: left %d, slow %d, throttled %d; want %+v", mayThrottle, n, l.Left, l.Slow, l.Throttled, step)
			}
			l.Round++
		}
	}
}

func TestGuestsAreHeldBackToLessThanTheirHostCopies(t *testing.T) {
	h := LiveHost{Copied: 64 << 20, Took: 2 * time.Second}
	for throttled, want := range map[int]int64{0: 0, 1: 8 << 20, 2: 4 << 20, 3: 2 << 20, 1000: leastWriteRate} {
		l := Live{Throttled: throttled}
		if got := l.WriteLimit(h, 2); got != want {
			t.Errorf("throttled %d times: %d, want %d", throttled, got, want)
		}
	}
	l := Live{Throttled: 1}
	if got := l.WriteLimit(LiveHost{}, 1); got != leastWriteRate {
		t.Errorf("a host that has copied nothing: %d", got)
	}
}
