// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// series is one thing that grows.
type series struct {
	name, unit, what string
	sizes, full      []int64 // full are those besides, with --full
	measure          func(ctx context.Context, h *host, n int64) (point, error)
}

var all = []series{
	{"moves", "moves", "volumes of 64 MiB, full of data, that no guest has, all moved at once", []int64{1, 4, 16, 64}, nil, movesAtOnce},
	{"size", "GiB", "a volume that no guest has, a tenth of it data, moved", []int64{1, 2, 4, 8}, []int64{16, 32}, sizeOfVolume},
	{"fold", "MiB", "an overlay of a stopped guest, so much of it written, folded into dst (complete)", []int64{1, 16, 128, 512}, []int64{1024, 4096}, sizeOfOverlay},
	{"attachments", "attachments", "a daemon that was killed, on a host with so many, until it is ready; its processor time is that of the minute after, in which it has nothing to do", []int64{20, 200, 1000}, []int64{5000, 10000}, attachmentsAtStart},
	{"history", "operations", "an attach and a detach, mean of ten, after so many operations", []int64{20, 200, 1000}, []int64{5000}, operationsBefore},
}

func seriesNames() (names []string) {
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

// run measures at each size, the full ones too if that is asked for, on a host of its own.
func (s series) run(ctx context.Context, bin, dir string, full bool, done func(point) error) (points []point, err error) {
	sizes := s.sizes
	if full {
		sizes = append(append([]int64{}, sizes...), s.full...)
	}
	for _, n := range sizes {
		p, err := s.at(ctx, bin, dir, n)
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

// at measures at one size.
func (s series) at(ctx context.Context, bin, dir string, n int64) (p point, err error) {
	h, end, err := newHost(ctx, bin, dir)
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return p, err
	}
	return s.measure(ctx, h, n)
}

// table writes what was measured as a table of Markdown.
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
