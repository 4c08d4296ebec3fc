// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
)

// column is a number of a move, as tables show it: the median of the rounds.
type column struct {
	title string
	// value is NaN where the move has none.
	value func(r record) float64
	// ratio: how many times it is of the reference of the group is shown, too.
	ratio bool
}

// columns are all of them. A table leaves out those that none of its contenders has.
var columns = []column{
	{"total s", func(r record) float64 { return r.TotalSeconds }, true},
	{"copy s", phase("copy"), false},
	{"verify s", phase("verify"), false},
	{"fold s", phase("fold"), false},
	{"exposed s", func(r record) float64 { return some(r.ExposedSeconds) }, false},
	{"move p99 ms", guest("move", func(w window) float64 { return w.P99MS }), true},
	{"longest gap ms", guest("move", func(w window) float64 { return w.LongestGapMS }), true},
	{"gap at start ms", func(r record) float64 { return some(r.GapMS["start"]) }, false},
	{"gap at switch ms", func(r record) float64 { return some(r.GapMS["switch"]) }, false},
	{"stall at start ms", startStall, false},
	{"stall at switch ms", switchStall, false},
	{"throughput kept %", kept("move"), false},
	{"mover CPU s/GiB", func(r record) float64 { return r.Cost.MoverCPUSeconds / gibibytes(r) }, false},
	{"QEMU CPU s/GiB", func(r record) float64 { return some(r.Cost.QEMUCPUSeconds) / gibibytes(r) }, false},
	{"daemon peak MiB", daemonPeak, false},
	{"command peak MiB", func(r record) float64 { return some(mebibytes(r.Cost.CommandPeakBytes)) }, false},
	{"QEMU peak MiB", func(r record) float64 { return some(mebibytes(r.Cost.QEMUPeakBytes)) }, false},
	{"QEMU written MiB", qemuWritten, false},
	{"src read MiB", func(r record) float64 { return mebibytes(r.Cost.Src.Read) }, false},
	{"src written MiB", func(r record) float64 { return mebibytes(r.Cost.Src.Written) }, false},
	{"dst read MiB", func(r record) float64 { return mebibytes(r.Cost.Dst.Read) }, false},
	{"dst written MiB", func(r record) float64 { return mebibytes(r.Cost.Dst.Written) }, false},
}

func gibibytes(r record) float64 { return float64(r.SizeBytes) / (1 << 30) }

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// daemonPeak is of the moves that the daemon made.
func daemonPeak(r record) float64 {
	if r.PhaseSeconds == nil {
		return math.NaN()
	}
	return mebibytes(r.Cost.DaemonPeakBytes)
}

// qemuWritten is of the moves beside a guest, which may have written nothing.
func qemuWritten(r record) float64 {
	if r.Group == stopped {
		return math.NaN()
	}
	return mebibytes(r.Cost.QEMUWrittenBytes)
}

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
func (c column) of(records []record, g group, contender string) (values []float64) {
	for _, r := range records {
		if !g.has(r) || r.Contender != contender || r.Error != "" {
			continue
		}
		if v := c.value(r); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values
}

// medians are those of the contenders that have the number.
func (c column) medians(records []record, g group) map[string]float64 {
	medians := make(map[string]float64)
	for _, contender := range g.contenders {
		if values := c.of(records, g, contender.name); len(values) > 0 {
			medians[contender.name] = median(values)
		}
	}
	return medians
}

// cell is the median of a contender, and how many times the one of the reference it is.
func (c column) cell(medians map[string]float64, contender, reference string) string {
	v, ok := medians[contender]
	if !ok {
		return "–"
	}
	text := fmt.Sprintf("%.3g", v)
	if v >= 100 {
		text = fmt.Sprintf("%.0f", v)
	}
	if of := medians[reference]; c.ratio && of > 0 {
		text += " (" + multiple(v/of) + ")"
	}
	return text
}

// multiple is a ratio as tables show it: to a hundredth, or to two digits where it is small.
func multiple(ratio float64) string {
	switch {
	case ratio == 1:
		return "1×"
	case ratio < 0.1:
		return fmt.Sprintf("%.2g×", ratio)
	}
	return fmt.Sprintf("%.2f×", ratio)
}
