// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// windows are those in which a guest is watched, in the order of a move; "move" is the whole one.
var windows = []string{"idle", "overlay", "copy", "verify", "fold", "move", "after"}

// feltColumns are what a guest felt in a window. They are the same for all windows.
func feltColumns(name string) []column {
	columns := []column{
		{title: "s", value: guest(name, func(w window) float64 { return w.Seconds })},
		{title: "each second", value: guest(name, func(w window) float64 { return w.PerSecond })},
		{title: "of idle %", value: kept(name)},
	}
	for _, l := range []struct {
		prefix string
		of     func(w window) *latencies
	}{
		{"", func(w window) *latencies { return &w.latencies }},
		{"write ", func(w window) *latencies { return w.Write }},
		{"flush ", func(w window) *latencies { return w.Flush }},
	} {
		add := func(title string, value func(latencies) float64) {
			columns = append(columns, column{title: l.prefix + title, value: guest(name, func(w window) float64 {
				if l.of(w) == nil {
					return math.NaN()
				}
				return value(*l.of(w))
			})})
		}
		add("p50", func(l latencies) float64 { return l.P50MS })
		add("p99", func(l latencies) float64 { return l.P99MS })
		add("p99.9", func(l latencies) float64 { return l.P999MS })
		add("max", func(l latencies) float64 { return l.MaxMS })
	}
	return columns
}

// felt is what the guests of a group felt, in Markdown: a window of a contender a line, without
// the columns that are empty. It is empty itself where no guest writes.
func felt(records []record, g group) string {
	var (
		shown []int // of feltColumns
		head  strings.Builder
	)
	for i, c := range feltColumns("") {
		in := func(w string) bool { return len(feltColumns(w)[i].medians(records, g)) > 0 }
		if slices.ContainsFunc(windows, in) {
			shown = append(shown, i)
			fmt.Fprintf(&head, " %s |", c.title)
		}
	}
	if len(shown) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("\nWhat the guest felt, times in ms by its own clock, of a write with the flush behind it where they do not say of which.\n\n")
	fmt.Fprintf(&out, "| contender | window |%s\n|---|---|%s\n", head.String(), strings.Repeat("---|", len(shown)))
	for _, contender := range g.contenders {
		for _, w := range windows {
			columns := feltColumns(w)
			if len(columns[shown[0]].of(records, g, contender.name)) == 0 {
				continue
			}
			fmt.Fprintf(&out, "| %s | %s |", contender.name, w)
			for _, i := range shown {
				fmt.Fprintf(&out, " %s |", columns[i].cell(columns[i].medians(records, g), contender.name, g.reference()))
			}
			out.WriteByte('\n')
		}
	}
	return out.String()
}
