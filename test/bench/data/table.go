// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// column is a number of a move, as tables show it: the median of the rounds.
type column struct {
	title string
	// value is NaN where the move has none.
	value func(r record) float64
	// ratio: how many times it is of the best contender is shown, too; less is better.
	ratio bool
}

// columns are all of them. A table leaves out those that none of its contenders has.
var columns = []column{
	{"total s", func(r record) float64 { return r.TotalSeconds }, true},
	{"copy s", phase("copy"), false},
	{"verify s", phase("verify"), false},
	{"fold s", phase("fold"), false},
	{"exposed s", func(r record) float64 { return some(r.ExposedSeconds) }, false},
	{"idle p50 ms", guest("idle", func(w window) float64 { return w.P50MS }), false},
	{"idle p99 ms", guest("idle", func(w window) float64 { return w.P99MS }), false},
	{"move p50 ms", guest("move", func(w window) float64 { return w.P50MS }), false},
	{"move p99 ms", guest("move", func(w window) float64 { return w.P99MS }), true},
	{"move p99.9 ms", guest("move", func(w window) float64 { return w.P999MS }), false},
	{"move max ms", guest("move", func(w window) float64 { return w.MaxMS }), false},
	{"overlay alone p50 ms", guest("overlay", func(w window) float64 { return w.P50MS }), false},
	{"overlay alone p99 ms", guest("overlay", func(w window) float64 { return w.P99MS }), false},
	{"copy p99 ms", guest("copy", func(w window) float64 { return w.P99MS }), false},
	{"verify p99 ms", guest("verify", func(w window) float64 { return w.P99MS }), false},
	{"fold p99 ms", guest("fold", func(w window) float64 { return w.P99MS }), false},
	{"after p99 ms", guest("after", func(w window) float64 { return w.P99MS }), false},
	{"longest gap ms", guest("move", func(w window) float64 { return w.LongestGapMS }), true},
	{"gap at start ms", func(r record) float64 { return some(r.GapMS["start"]) }, false},
	{"gap at switch ms", func(r record) float64 { return some(r.GapMS["switch"]) }, false},
	{"stall at start ms", startStall, false},
	{"stall at switch ms", switchStall, false},
	{"throughput kept %", kept("move"), false},
	{"kept on the overlay alone %", kept("overlay"), false},
	{"mover CPU s/GiB", func(r record) float64 { return r.Cost.MoverCPUSeconds / gibibytes(r) }, false},
	{"QEMU CPU s/GiB", func(r record) float64 { return some(r.Cost.QEMUCPUSeconds) / gibibytes(r) }, false},
	{"daemon peak MiB", func(r record) float64 { return float64(r.Cost.DaemonPeakBytes) / (1 << 20) }, false},
	{"src read MiB", func(r record) float64 { return float64(r.Cost.Src.Read) / (1 << 20) }, false},
	{"dst read MiB", func(r record) float64 { return float64(r.Cost.Dst.Read) / (1 << 20) }, false},
	{"dst written MiB", func(r record) float64 { return float64(r.Cost.Dst.Written) / (1 << 20) }, false},
}

func gibibytes(r record) float64 { return float64(r.SizeBytes) / (1 << 30) }

// some is a number that 0 stands for the absence of.
func some(v float64) float64 {
	if v == 0 {
		return math.NaN()
	}
	return v
}

func phase(name string) func(record) float64 {
	return func(r record) float64 { return some(r.PhaseSeconds[name]) }
}

func guest(name string, of func(window) float64) func(record) float64 {
	return func(r record) float64 {
		w, ok := r.Guest[name]
		if !ok || w.Acked == 0 {
			return math.NaN()
		}
		return of(w)
	}
}

// kept is the share of the guest's idle throughput that is left in a window.
func kept(name string) func(record) float64 {
	return func(r record) float64 {
		idle, ok := r.Guest["idle"]
		w, was := r.Guest[name]
		if !ok || !was || idle.PerSecond == 0 {
			return math.NaN()
		}
		return 100 * w.PerSecond / idle.PerSecond
	}
}

func startStall(r record) float64 {
	if r.StallMS == nil || r.StallMS.Start == nil {
		return math.NaN()
	}
	return *r.StallMS.Start
}

func switchStall(r record) float64 {
	if r.StallMS == nil || r.StallMS.Switch == nil {
		return math.NaN()
	}
	return *r.StallMS.Switch
}

// of are the numbers of a contender's moves that succeeded.
func (c column) of(records []record, group, contender string) (values []float64) {
	for _, r := range records {
		if r.Group != group || r.Contender != contender || r.Error != "" {
			continue
		}
		if v := c.value(r); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values
}

// table is the results in Markdown, a contender a line.
func table(about map[string]any, records []record, groups []group) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%v, %v CPUs, Linux %v, %v, %v, %v, load average %v to %v; %v\n", about["cpu"], about["cpus"], about["kernel"],
		about["qemu"], about["libvirt"], about["go"], about["load_average"], about["load_average_at_end"], about["version"])
	fmt.Fprintf(&out, "Raw volume of %v bytes, %v %% full, from %v to %v; seed %v; medians of %v rounds; emulated guests: only ratios count. In brackets: how many times the best.\n",
		about["size_bytes"], about["fill_percent"], about["file_system"], about["file_system"], about["seed"], about["rounds"])
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
				fmt.Fprintf(&out, " %s |", c.cell(c.medians(records, g), contender.name))
			}
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// moves says how many there were, and how many of them failed.
func moves(records []record, g group, contender string) string {
	all, failed := 0, 0
	for _, r := range records {
		if r.Group == g.name && r.Contender == contender {
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

// medians are those of the contenders that have the number.
func (c column) medians(records []record, g group) map[string]float64 {
	medians := make(map[string]float64)
	for _, contender := range g.contenders {
		if values := c.of(records, g.name, contender.name); len(values) > 0 {
			medians[contender.name] = median(values)
		}
	}
	return medians
}

// cell is the median of a contender, and how many times the best of all it is.
func (c column) cell(medians map[string]float64, contender string) string {
	v, ok := medians[contender]
	if !ok {
		return "–"
	}
	text := fmt.Sprintf("%.3g", v)
	if v >= 100 {
		text = fmt.Sprintf("%.0f", v)
	}
	if best := slices.Min(slices.Collect(maps.Values(medians))); c.ratio && best > 0 {
		text += fmt.Sprintf(" (%.2f×)", v/best)
	}
	return text
}
