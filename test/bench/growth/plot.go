// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/test/bench/plot"
)

// The layout of the plot, in pixels: panels in two columns, and a curve in each with room for its
// axes.
const (
	panelWidth, panelHeight   = 500, 290
	panelColumns              = 2
	left, right, above, below = 60, 20, 50, 40
	rowHeight                 = 20
)

// colors are those of the runs.
var colors = []string{"#4a90d9", "#d9534f", "#4cae4c", "#8e6bbf", "#e0a030", "#555555"}

// draw draws runs as SVG, a panel for each series that was measured and is asked for.
func draw(runs []measuredRun, names []string) (string, error) {
	var f plot.Figure
	top := float64(rowHeight)
	for i, r := range runs {
		f.Bar(10, top, 12, 12, color(i))
		f.Text(28, top+11, r.label)
		top += rowHeight
	}
	panels := 0
	for _, s := range all {
		measured := slices.ContainsFunc(runs, func(r measuredRun) bool { return len(r.of(s.name)) > 0 })
		if measured && slices.Contains(names, s.name) {
			s.panel(&f, float64(panels%panelColumns)*panelWidth, top+float64(panels/panelColumns)*panelHeight, runs)
			panels++
		}
	}
	if panels == 0 {
		return "", errors.New("draw: nothing was measured")
	}
	rows := (panels + panelColumns - 1) / panelColumns
	return f.SVG(panelColumns*panelWidth, top+float64(rows)*panelHeight), nil
}

func color(run int) string { return colors[run%len(colors)] }

// title says with which power time grows in each of the runs that have the series, in their order.
func (s series) title(runs []measuredRun) string {
	var powers []string
	for _, r := range runs {
		switch points := r.of(s.name); len(points) {
		case 0:
		case 1:
			powers = append(powers, "unknown")
		default:
			powers = append(powers, fmt.Sprintf("%.2f", exponent(points)))
		}
	}
	return s.name + ": time grows with the power " + strings.Join(powers, ", ")
}

// panel draws a series with its upper left corner at x and y.
func (s series) panel(f *plot.Figure, x, y float64, runs []measuredRun) {
	var sizes, seconds []float64
	for _, r := range runs {
		for _, p := range r.of(s.name) {
			sizes, seconds = append(sizes, float64(p.N)), append(seconds, p.Seconds)
		}
	}
	f.Text(x+10, y+20, s.title(runs), plot.Bold)
	f.Text(x+10, y+36, s.what, plot.Small)
	across := axisOf(sizes, x+left, x+panelWidth-right)
	up := axisOf(seconds, y+panelHeight-below, y+above)
	slices.Sort(sizes)
	for _, size := range slices.Compact(sizes) {
		f.Line([][2]float64{{across.at(size), up.from}, {across.at(size), up.to}}, 1, "#e0e0e0")
		f.Text(across.at(size), up.from+15, fmt.Sprint(size), plot.Small, plot.Middle)
	}
	for _, v := range up.ticks() {
		f.Line([][2]float64{{across.from, up.at(v)}, {across.to, up.at(v)}}, 1, "#e0e0e0")
		f.Text(across.from-6, up.at(v)+4, fmt.Sprintf("%g s", v), plot.Small, plot.End)
	}
	f.Text(across.to, up.from+30, s.unit, plot.Small, plot.End)
	for i, r := range runs {
		var curve [][2]float64
		for _, p := range r.of(s.name) {
			curve = append(curve, [2]float64{across.at(float64(p.N)), up.at(p.Seconds)})
		}
		f.Line(curve, 2, color(i))
		for _, p := range curve {
			f.Dot(p[0], p[1], color(i))
		}
	}
}
