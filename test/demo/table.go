// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// The widths of the first column and of the others.
const (
	titleWidth = 37
	cellWidth  = 14
)

// none is what stands where there is nothing to tell.
const none = "-"

// table renders the results, one column each, and says how to read them.
func table(results []result) string {
	var out strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&out, "%-*s", titleWidth, row.title)
		for i := range results {
			fmt.Fprintf(&out, "%*s", cellWidth, row.cell(&results[i]))
		}
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, `
Stall, felt: the longest time without an acknowledged write, as they arrived from
the guest: from the request until the source was frozen, and from the start of
the fold until the end. The guest's own pace, a write every %d ms, is part of it.
Stall, measured: the whole call of libvirt in which the guest's disk is held up for
a part of the time, or how long the guest was paused; it is what volferryctl prints.
The switch of a move that is cancelled is the one back to the source. A guest that
is stopped feels nothing.
p50, p99: latency of the writes, by the guest's clock.
Writes: zeroing, discards and flushes are among them.
`, load.Interval.Milliseconds())
	return out.String()
}

// rows are the lines of the table.
var rows = []struct {
	title string
	cell  func(*result) string
}{
	{"", func(r *result) string { return r.title }},
	{"pools", pools},
	{"size of the volume", func(r *result) string { return bytes(r.migration.Src.SizeBytes) }},
	{"seconds from start to end", seconds},
	{"stall at start, felt / measured, ms", func(r *result) string { return stall(r.start, r.migration.StallMS.Start) }},
	{"stall at switch, felt / measured, ms", func(r *result) string { return stall(r.switched, r.migration.StallMS.Switch) }},
	{"guest's writes idle, p50 / p99, ms", func(r *result) string { return latency(r.idle) }},
	{"guest's writes during, p50 / p99, ms", func(r *result) string { return latency(r.during) }},
	{"writes acknowledged so far", func(r *result) string { return fmt.Sprint(r.check.Acked) }},
	{"of these found in the volume", func(r *result) string { return fmt.Sprint(r.check.Found) }},
	{"blocks read / wrong", func(r *result) string { return fmt.Sprintf("%d / %d", r.check.Blocks, r.check.Bad) }},
}

// pools says where the volume came from and where it is.
func pools(r *result) string {
	if r.migration.State == api.MigrationCancelled {
		return "stays in " + r.migration.Src.Pool
	}
	return r.migration.Src.Pool + " -> " + r.migration.Dst.Pool
}

// seconds is how long the migration took, as volferryctl says it.
func seconds(r *result) string {
	if r.migration.StartedAt == nil || r.migration.FinishedAt == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.1f", r.migration.FinishedAt.Sub(*r.migration.StartedAt).Seconds())
}

// milliseconds has one decimal where that says something.
func milliseconds(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}

func inMilliseconds(d time.Duration) string {
	return milliseconds(float64(d) / float64(time.Millisecond))
}

// stall is what the guest felt beside what the host measured.
func stall(guest *lab.Pace, hostMS *float64) string {
	if guest == nil {
		return none
	}
	host := none
	if hostMS != nil {
		host = milliseconds(*hostMS)
	}
	return inMilliseconds(guest.LongestGap) + " / " + host
}

func latency(p *lab.Pace) string {
	if p == nil {
		return none
	}
	return inMilliseconds(p.P50) + " / " + inMilliseconds(p.P99)
}
