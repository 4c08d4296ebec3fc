// SPDX-License-Identifier: Apache-2.0

// Package meter reads what the kernel counts: CPU time and memory of processes, bytes of
// disks, and what a machine is. The benchmarks share it. It knows nothing of Volferry.
package meter

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MachineTime is the time that CPUs were not idle, what a hypervisor took of them
// included.
func MachineTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	// cpu user nice system idle iowait irq softirq steal ...
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0, fmt.Errorf("read CPU time: %q", line)
	}
	return ticks(slices.Concat(fields[1:4], fields[6:9]))
}

// Machine describes where this runs, for a report. The disk is the one under dir.
func Machine(dir string) map[string]any {
	m := map[string]any{
		"cpus": runtime.NumCPU(), "memory_gib": memoryGiB(), "disk": DiskKind(dir),
		"go": runtime.Version(), "arch": runtime.GOARCH, "load_average": LoadAverage(),
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, found := strings.Cut(string(text), "model name\t: "); found {
			m["cpu"], _, _ = strings.Cut(rest, "\n")
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m["kernel"] = strings.TrimSpace(string(text))
	}
	return m
}

// memoryGiB is all of the machine's memory, to a tenth; 0 where it cannot be read.
func memoryGiB() float64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return math.Round(10*float64(info.Totalram)*float64(info.Unit)/(1<<30)) / 10
}

// LoadAverage is the machine's, of the last minute; empty where it cannot be read.
func LoadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	average, _, _ := strings.Cut(string(text), " ")
	return average
}
