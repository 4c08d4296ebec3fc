// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"strings"
)

// series is one thing that grows.
type series struct {
	name, unit, what string
	sizes, full      []int64 // full are those besides, with --full
	measure          func(ctx context.Context, h *host, n int64) (point, error)
}

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

var all = []series{
	{"moves", "moves", "volumes of 64 MiB, full of data, that no guest has, all moved at once", []int64{1, 4, 16, 64}, nil, movesAtOnce},
	{"size", "GiB", "a volume that no guest has, a tenth of it data, moved", []int64{1, 2, 4, 8}, []int64{16, 32}, sizeOfVolume},
	{"fold", "MiB", "an overlay of a stopped guest, so much of it written, folded into dst (complete)", []int64{1, 16, 128, 512}, []int64{1024, 4096}, sizeOfOverlay},
	{"attachments", "attachments", "a daemon that was killed, on a host with so many, until it is ready", []int64{20, 200, 1000}, []int64{5000}, attachmentsAtStart},
	{"history", "operations", "an attach and a detach, mean of ten, after so many operations", []int64{20, 200, 1000}, []int64{5000}, operationsBefore},
}

func seriesNames() (names []string) {
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

// run measures at each size, on a host of its own.
func (s series) run(ctx context.Context, o options, done func(point) error) (points []point, err error) {
	sizes := s.sizes
	if o.full {
		sizes = append(append([]int64{}, sizes...), s.full...)
	}
	for _, n := range sizes {
		p, err := s.at(ctx, o, n)
		if err != nil {
			return points, fmt.Errorf("%d %s: %w", n, s.unit, err)
		}
		p.Name, p.Series, p.N = "growth", s.name, n
		points = append(points, p)
		if err := done(p); err != nil {
			return points, err
		}
	}
	return points, nil
}

func (s series) table(out *strings.Builder, points []point) {
	const mib = 1 << 20
	fmt.Fprintf(out, "## %s\n\n%s.", s.name, strings.ToUpper(s.what[:1])+s.what[1:])
	fmt.Fprintf(out, " Time grows with the power %.2f; from the last but one to the last size, %.2f.\n\n", exponent(points), exponent(points[max(0, len(points)-2):]))
	fmt.Fprintf(out, "| %s | s | CPU s of the daemon | MiB of the daemon | at most |\n|---|---|---|---|---|\n", s.unit)
	for _, p := range points {
		fmt.Fprintf(out, "| %d | %.2f | %.2f | %d | %d |\n", p.N, p.Seconds, p.CPUSeconds, p.ResidentBytes/mib, p.PeakBytes/mib)
	}
	out.WriteString("\n")
}

// exponent is the power of the size with which time grows, by least squares of the logarithms: 0 is not at
// all, 1 in proportion. It is NaN for fewer than two sizes.
func exponent(points []point) float64 {
	var n, sx, sy, sxx, sxy float64
	for _, p := range points {
		x, y := math.Log(float64(p.N)), math.Log(p.Seconds)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
