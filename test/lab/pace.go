// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"iter"
	"slices"
	"time"
)

// Pace is how the operations of a guest went in some span of time.
type Pace struct {
	Acked int
	// P50, P99 and Max are latencies by the guest's clock.
	P50, P99, Max time.Duration
	// LongestGap is the longest time between two acknowledgements, as the host
	// saw them arrive. Unlike a latency it counts the time that the guest was
	// paused, during which the guest's own clock stands still. The interval of
	// the load is part of it: a load of 1 ms shows a stall best.
	LongestGap time.Duration
}

// Between measures the operations that were acknowledged between the two
// moments, and the gaps that reach into that span.
func (h *History) Between(from, to time.Time) Pace {
	var p Pace
	var latencies []time.Duration
	for _, a := range h.Acks {
		if !a.HostTime.Before(from) && !a.HostTime.After(to) {
			latencies = append(latencies, a.Latency)
		}
	}
	for begin, end := range h.Gaps(from, to) {
		p.LongestGap = max(p.LongestGap, end.Sub(begin))
	}
	if p.Acked = len(latencies); p.Acked == 0 {
		return p
	}
	slices.Sort(latencies)
	at := func(percent int) time.Duration { return latencies[(len(latencies)-1)*percent/100] }
	p.P50, p.P99, p.Max = at(50), at(99), at(100)
	return p
}

// Gaps yields the begin and the end of each time without an acknowledgement that reaches into the
// span between two moments.
func (h *History) Gaps(from, to time.Time) iter.Seq2[time.Time, time.Time] {
	return func(yield func(begin, end time.Time) bool) {
		for i, a := range h.Acks {
			next := to // nothing came after the last one
			if i+1 < len(h.Acks) {
				next = h.Acks[i+1].HostTime
			}
			if next.After(from) && a.HostTime.Before(to) && !yield(a.HostTime, next) {
				return
			}
		}
	}
}
