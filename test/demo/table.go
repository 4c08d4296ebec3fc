// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/volferry/volferry/test/lab"
)

// none is what stands where there is nothing to tell.
const none = "-"

// table renders the results, one column each.
func table(results []result) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		cells := []string{row.title}
		for i := range results {
			cells = append(cells, row.cell(&results[i]))
		}
		// A strings.Builder takes everything.
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t")+"\t")
	}
	_ = w.Flush()
	return out.String()
}

// rows are the lines of the table.
var rows = []struct {
	title string
	cell  func(*result) string
}{
	{"", func(r *result) string { return r.title }},
	{"pools", func(r *result) string { return r.migration.Src.Pool + " -> " + r.migration.Dst.Pool }},
	{"volume", func(r *result) string { return bytes(r.migration.Src.SizeBytes) }},
	{"seconds", func(r *result) string { return fmt.Sprintf("%.1f", r.took.Seconds()) }},
	{"stall at start, seen by the guest", func(r *result) string { return gap(r.start) }},
	{"measured by the host", func(r *result) string { return stall(r.migration.StallMS.Start) }},
	{"stall at switch, seen by the guest", func(r *result) string { return gap(r.switched) }},
	{"measured by the host", func(r *result) string { return stall(r.migration.StallMS.Switch) }},
	{"guest's writes idle, p50 / p99", func(r *result) string { return latency(r.idle) }},
	{"during the move, p50 / p99", func(r *result) string { return latency(r.during) }},
	{"writes acknowledged in all", func(r *result) string { return fmt.Sprint(r.check.Acked) }},
	{"of these found", func(r *result) string { return fmt.Sprint(r.check.Found) }},
	{"blocks read / wrong", func(r *result) string { return fmt.Sprintf("%d / %d", r.check.Blocks, r.check.Bad) }},
}

// bytes is a size as a person says it.
func bytes(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

func gap(p *lab.Pace) string {
	if p == nil {
		return none
	}
	return milliseconds(p.LongestGap)
}

func latency(p *lab.Pace) string {
	if p == nil {
		return none
	}
	return milliseconds(p.P50) + " / " + milliseconds(p.P99)
}

func stall(ms *float64) string {
	if ms == nil {
		return none
	}
	return milliseconds(time.Duration(*ms * float64(time.Millisecond)))
}
