// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// percentiles says which rule they follow, that of quantile.
const percentiles = "Percentiles are by the nearest rank: p99 is the smallest latency that 99 % of the writes of one move do not exceed, and so the longest where there are fewer than 100; " +
	"p99.9 is the longest of fewer than 1000. Of the rounds the median is shown.\n"

// table is the results in Markdown, a contender a line. missing says which of them are left out,
// and why.
func table(about map[string]any, records []record, groups []group, missing []string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%v, %v CPUs, %v GiB of RAM, volumes on %v, Linux %v, %v, %v, %v, load average %v to %v; %v\n", about["cpu"], about["cpus"], about["memory_gib"],
		about["disk"], about["kernel"], about["qemu"], about["libvirt"], about["go"], about["load_average"], about["load_average_at_end"], about["version"])
	fmt.Fprintf(&out, "Raw volume of %v bytes, from %v to %v; seed %v; medians of %v rounds; emulated guests: only ratios count. In brackets: how many times of volferry's.\n",
		about["size_bytes"], about["file_system"], about["file_system"], about["seed"], about["rounds"])
	out.WriteString(percentiles)
	for _, s := range missing {
		fmt.Fprintf(&out, "\nLeft out: %s.\n", s)
	}
	for _, g := range groups {
		fmt.Fprintf(&out, "\n### %s\n\n", g.title())
		shown := slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return len(c.medians(records, g)) == 0 })
		out.WriteString("| contender | moves |")
		for _, c := range shown {
			fmt.Fprintf(&out, " %s |", c.title)
		}
		out.WriteString("\n|---|---|" + strings.Repeat("---|", len(shown)) + "\n")
		for _, contender := range g.contenders {
			fmt.Fprintf(&out, "| %s | %s |", contender.name, moves(records, g, contender.name))
			for _, c := range shown {
				fmt.Fprintf(&out, " %s |", c.cell(c.medians(records, g), contender.name, g.reference()))
			}
			out.WriteByte('\n')
		}
		out.WriteString(failures(records, g))
		out.WriteString(felt(records, g))
	}
	return out.String()
}

// moves says how many there were, and how many of them failed.
func moves(records []record, g group, contender string) string {
	all, failed := 0, 0
	for _, r := range records {
		if g.has(r) && r.Contender == contender {
			all++
			if r.Error != "" {
				failed++
			}
		}
	}
	if failed > 0 {
		return fmt.Sprintf("%d, **%d failed**", all, failed)
	}
	return fmt.Sprint(all)
}
