// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// plotted are the columns that the plot shows, each as a panel of a group.
var plotted = []string{"total s", "move p99 ms", "longest gap ms"}

// The layout of the plot, in pixels.
const (
	plotWidth  = 900
	labelWidth = 220
	barWidth   = plotWidth - labelWidth - 120 // the longest, with room for its number
	rowHeight  = 24
	headHeight = 44
)

// plot draws the results as SVG: a bar for each median, a dot for each move.
func plot(records []record, groups []group) string {
	var body strings.Builder
	fmt.Fprintf(&body, "<text x=\"10\" y=\"%d\">A bar is a median, a dot is a move. In brackets: how many times of volferry's.</text>\n", rowHeight)
	y := rowHeight
	for _, g := range groups {
		for _, c := range columns {
			if slices.Contains(plotted, c.title) && len(c.medians(records, g)) > 0 {
				y = panel(&body, y, records, g, c)
			}
		}
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, plotWidth, y+rowHeight, body.String())
}

// panel draws one number of one group below y, and returns where it ends.
func panel(out *strings.Builder, y int, records []record, g group, c column) int {
	fmt.Fprintf(out, "<text x=\"10\" y=\"%d\" font-weight=\"bold\">%s: %s</text>\n", y+headHeight-14, g.title(), c.title)
	y += headHeight
	most := 0.0
	for _, contender := range g.contenders {
		most = max(most, slices.Max(append(c.of(records, g, contender.name), 0)))
	}
	x := func(v float64) float64 {
		return math.Round(labelWidth + barWidth*v/max(most, math.SmallestNonzeroFloat64))
	}
	medians := c.medians(records, g)
	for _, contender := range g.contenders {
		fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", labelWidth-8, y+16, contender.name)
		if v, ok := medians[contender.name]; ok {
			fill := "#b0b0b0"
			if contender.managed {
				fill = "#4a90d9"
			}
			fmt.Fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%.0f\" height=\"%d\" fill=\"%s\"/>\n", labelWidth, y+4, x(v)-labelWidth, rowHeight-8, fill)
			for _, each := range c.of(records, g, contender.name) {
				fmt.Fprintf(out, "<circle cx=\"%.0f\" cy=\"%d\" r=\"3\" fill=\"black\"/>\n", x(each), y+rowHeight/2)
			}
			fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n", labelWidth+barWidth+10, y+16, c.cell(medians, contender.name, g.reference()))
		} else {
			fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\">no number</text>\n", labelWidth, y+16)
		}
		y += rowHeight
	}
	return y
}
