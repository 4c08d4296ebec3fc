// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"time"
)

// quantile is the smallest of the latencies, which are sorted, that the share q of them does
// not exceed; 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	// A rank that is whole but for the error of a product is whole.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median is the one in the middle, or the mean of the two there.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// rotated are the items with another one first in every round.
func rotated[T any](items []T, round int) []T {
	first := round % max(1, len(items))
	return slices.Concat(items[first:], items[:first])
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
