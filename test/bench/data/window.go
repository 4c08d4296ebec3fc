// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"

	"github.com/volferry/volferry/test/lab"
)

// span is a stretch of time.
type span struct{ from, to time.Time }

func (s span) has(at time.Time) bool { return !at.Before(s.from) && !at.After(s.to) }

func (s span) seconds() float64 { return s.to.Sub(s.from).Seconds() }

// latencies are by the guest's clock.
type latencies struct {
	P50MS  float64 `json:"p50_ms"`
	P99MS  float64 `json:"p99_ms"`
	P999MS float64 `json:"p999_ms"`
	MaxMS  float64 `json:"max_ms"`
}

func latenciesOf(all []time.Duration) latencies {
	slices.Sort(all)
	return latencies{
		P50MS: millis(quantile(all, 0.5)), P99MS: millis(quantile(all, 0.99)),
		P999MS: millis(quantile(all, 0.999)), MaxMS: millis(quantile(all, 1)),
	}
}

// window is how a guest's operations went in a span. A latency of the window has the flush in
// it, where there is one; Write and Flush are the two apart, where the guest flushed. The gap
// is by the host's clock: it has the time in which the guest was suspended, too.
type window struct {
	Seconds      float64 `json:"seconds"`
	Acked        int     `json:"acked"`
	PerSecond    float64 `json:"per_second"`
	LongestGapMS float64 `json:"longest_gap_ms"`
	latencies
	Write *latencies `json:"write,omitempty"`
	Flush *latencies `json:"flush,omitempty"`
}

// windowOf measures the operations that were acknowledged in the span.
func windowOf(h *lab.History, s span) window {
	var whole, writes, flushes []time.Duration
	for _, a := range h.Acks {
		if !s.has(a.HostTime) {
			continue
		}
		whole, writes = append(whole, a.Latency), append(writes, a.Latency-a.Flush)
		if a.Op.Flush {
			flushes = append(flushes, a.Flush)
		}
	}
	w := window{
		Seconds: s.seconds(), Acked: len(whole), PerSecond: float64(len(whole)) / s.seconds(),
		LongestGapMS: millis(h.Between(s.from, s.to).LongestGap), latencies: latenciesOf(whole),
	}
	if len(flushes) > 0 {
		write, flush := latenciesOf(writes), latenciesOf(flushes)
		w.Write, w.Flush = &write, &flush
	}
	return w
}
