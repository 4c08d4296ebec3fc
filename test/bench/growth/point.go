// SPDX-License-Identifier: Apache-2.0

package main

import "math"

// point is what was measured at one size.
type point struct {
	Name    string  `json:"name"` // always growth
	Series  string  `json:"series"`
	N       int64   `json:"n"`
	Seconds float64 `json:"seconds"`
	// CPUSeconds are those of the daemon and of the children that it has waited for.
	CPUSeconds float64 `json:"daemon_cpu_s"`
	// ResidentBytes are what the daemon has afterwards, PeakBytes the most that it had.
	ResidentBytes int64 `json:"daemon_resident_bytes"`
	PeakBytes     int64 `json:"daemon_peak_bytes"`
}

// exponent is the power of the size with which time grows, by least squares of the logarithms: 0 is
// not at all, 1 in proportion. It is NaN for fewer than two sizes.
func exponent(points []point) float64 {
	var n, sx, sy, sxx, sxy float64
	for _, p := range points {
		x, y := math.Log(float64(p.N)), math.Log(p.Seconds)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
