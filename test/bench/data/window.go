// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"

	"github.com/volferry/volferry/test/lab"
)

// span is a stretch of time.
type span struct{ from, to time.Time }

func (s span) seconds() float64 { return s.to.Sub(s.from).Seconds() }

// window is how a guest's writes went in a span. A latency is by the guest's clock and has the
// flush in it, where there is one. The gap is by the host's: it has the time in which the
// guest was suspended, too.
type window struct {
	Seconds      float64 `json:"seconds"`
	Acked        int     `json:"acked"`
	PerSecond    float64 `json:"per_second"`
	P50MS        float64 `json:"p50_ms"`
	P99MS        float64 `json:"p99_ms"`
	P999MS       float64 `json:"p999_ms"`
	MaxMS        float64 `json:"max_ms"`
	LongestGapMS float64 `json:"longest_gap_ms"`
}

// windowOf measures the operations that were acknowledged in the span.
func windowOf(h *lab.History, s span) window {
	var latencies []time.Duration
	for _, a := range h.Acks {
		if !a.HostTime.Before(s.from) && !a.HostTime.After(s.to) {
			latencies = append(latencies, a.Latency)
		}
	}
	slices.Sort(latencies)
	return window{
		Seconds: s.seconds(), Acked: len(latencies), PerSecond: float64(len(latencies)) / s.seconds(),
		P50MS: millis(quantile(latencies, 0.5)), P99MS: millis(quantile(latencies, 0.99)),
		P999MS: millis(quantile(latencies, 0.999)), MaxMS: millis(quantile(latencies, 1)),
		LongestGapMS: millis(h.Between(s.from, s.to).LongestGap),
	}
}
