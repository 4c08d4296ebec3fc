// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
)

func TestTheExponentIsThePowerWithWhichTimeGrows(t *testing.T) {
	for _, power := range []float64{0, 0.5, 1, 2} {
		var points []point
		for _, n := range []int64{1, 4, 16, 100} {
			points = append(points, point{N: n, Seconds: 3 * math.Pow(float64(n), power)})
		}
		for _, of := range [][]point{points, points[2:]} {
			if got := exponent(of); math.Abs(got-power) > 1e-9 {
				t.Errorf("of %d sizes: %v, want %v", len(of), got, power)
			}
		}
	}
}
