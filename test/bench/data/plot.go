// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"

	"github.com/volferry/volferry/test/bench/plot"
)

// plotted are the columns that the plot shows, each as a panel of a group.
var plotted = []string{"total s", "move p99 ms", "longest gap ms"}

// The layout of the plot, in pixels.
const (
	plotWidth  = 1120
	labelWidth = 260
	barWidth   = plotWidth - labelWidth - 120 // the longest, with room for its number
	rowHeight  = 24
	headHeight = 44
)

// draw draws the results as SVG: a bar for each median, a dot for each move.
func draw(records []record, groups []group) string {
	var f plot.Figure
	f.Text(10, rowHeight, "A bar is a median, a dot is a move. In brackets: how many times of volferry's.")
	y := float64(rowHeight)
	for _, g := range groups {
		for _, c := range columns {
			if slices.Contains(plotted, c.title) && len(c.medians(records, g)) > 0 {
				y = panel(&f, y, records, g, c)
			}
		}
	}
	return f.SVG(plotWidth, y+rowHeight)
}

// panel draws one number of one group below y, and returns where it ends.
func panel(f *plot.Figure, y float64, records []record, g group, c column) float64 {
	f.Text(10, y+headHeight-14, g.title()+": "+c.title, plot.Bold)
	y += headHeight
	most := math.SmallestNonzeroFloat64
	for _, contender := range g.contenders {
		most = slices.Max(append(c.of(records, g, contender.name), most))
	}
	length := func(v float64) float64 { return barWidth * v / most }
	medians := c.medians(records, g)
	for _, contender := range g.contenders {
		f.Text(labelWidth-8, y+16, contender.name, plot.End)
		if v, ok := medians[contender.name]; ok {
			fill := "#b0b0b0"
			if contender.managed {
				fill = "#4a90d9"
			}
			f.Bar(labelWidth, y+4, length(v), rowHeight-8, fill)
			for _, each := range c.of(records, g, contender.name) {
				f.Dot(labelWidth+length(each), y+rowHeight/2, "black")
			}
			f.Text(labelWidth+barWidth+10, y+16, c.cell(medians, contender.name, g.reference()))
		} else {
			f.Text(labelWidth, y+16, "no number")
		}
		y += rowHeight
	}
	return y
}
