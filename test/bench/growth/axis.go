// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
)

// axis is a logarithmic one: equal ratios are equally far apart.
type axis struct {
	low, high float64 // its values
	from, to  float64 // their pixels
}

// axisOf has room for some values, and for one power of ten at least, so that what hardly grows
// looks like it.
func axisOf(values []float64, from, to float64) axis {
	const room, least = 1.15, 10
	a := axis{low: slices.Min(values) / room, high: slices.Max(values) * room, from: from, to: to}
	if spare := math.Sqrt(least * a.low / a.high); spare > 1 {
		a.low, a.high = a.low/spare, a.high*spare
	}
	return a
}

// at is where a value is, in pixels.
func (a axis) at(v float64) float64 {
	return a.from + (a.to-a.from)*math.Log(v/a.low)/math.Log(a.high/a.low)
}

// ticks are the round values of the axis: powers of ten, and twice and five times of them where
// these are few.
func (a axis) ticks() (values []float64) {
	digits := []float64{1, 2, 5}
	if a.high/a.low > 1000 {
		digits = digits[:1]
	}
	for power := math.Floor(math.Log10(a.low)); math.Pow(10, power) <= a.high; power++ {
		for _, digit := range digits {
			if v := digit * math.Pow(10, power); v >= a.low && v <= a.high {
				values = append(values, v)
			}
		}
	}
	return values
}
