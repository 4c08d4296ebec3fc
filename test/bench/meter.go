// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of CPU time in /proc, which is the same on every Linux.
const tick = 10 * time.Millisecond

// usage is what a stretch of time cost.
type usage struct {
	wall     time.Duration
	registry time.Duration // CPU time of the registry
	load     time.Duration // CPU time of this program
	others   time.Duration // CPU time of everybody else on the machine
}

// cpuTimes are CPU times since their beginnings.
type cpuTimes struct {
	at                      time.Time
	registry, load, machine time.Duration
}

// usageWithin measures over a window.
func (b *bench) usageWithin(ctx context.Context, w window) (usage, error) {
	if err := until(ctx, w.begin); err != nil {
		return usage{}, err
	}
	before, err := b.cpuTimes()
	if err != nil {
		return usage{}, err
	}
	if err := until(ctx, w.end); err != nil {
		return usage{}, err
	}
	after, err := b.cpuTimes()
	u := usage{wall: after.at.Sub(before.at), registry: after.registry - before.registry, load: after.load - before.load}
	u.others = max(0, after.machine-before.machine-u.registry-u.load)
	return u, err
}

func (b *bench) cpuTimes() (t cpuTimes, err error) {
	var errs [3]error
	t.at = time.Now()
	t.registry, errs[0] = processTime(b.registry.PID())
	t.load, errs[1] = ownTime()
	t.machine, errs[2] = machineTime()
	return t, errors.Join(errs[:]...)
}

func processTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	// The name before may have blanks in it.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read CPU time: %q", text)
	}
	return ticks(fields[11:13])
}

func ownTime() (time.Duration, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
}

// machineTime is the time that CPUs were not idle, what a hypervisor took of them
// included.
func machineTime() (time.Duration, error) {
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

func ticks(fields []string) (sum time.Duration, err error) {
	for _, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read CPU time: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// memory is what a process has of the machine's, and the part of it that is its
// own: not of a file.
func memory(pid int) (resident, own int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmRSS": &resident, "RssAnon": &own}[name]
		if into == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read memory: %w", err)
		}
		*into = kib << 10
	}
	return resident, own, nil
}

// syncTimes says how long the disk alone takes to make 4 KiB more of a file
// durable: no answer of a single client can come sooner.
func syncTimes(dir string) (p50, p99 time.Duration, err error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, 0, fmt.Errorf("measure the disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	times := make([]time.Duration, 500)
	block := make([]byte, 4096)
	for i := range times {
		begin := time.Now()
		_, writeErr := f.Write(block)
		if err := errors.Join(writeErr, syscall.Fdatasync(int(f.Fd()))); err != nil {
			return 0, 0, fmt.Errorf("measure the disk: %w", err)
		}
		times[i] = time.Since(begin)
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100], nil
}

// machine describes where this runs.
func machine() map[string]any {
	m := map[string]any{"cpus": runtime.NumCPU(), "go": runtime.Version(), "arch": runtime.GOARCH}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, found := strings.Cut(string(text), "model name\t: "); found {
			m["cpu"], _, _ = strings.Cut(rest, "\n")
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m["kernel"] = strings.TrimSpace(string(text))
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m["load_average"], _, _ = strings.Cut(string(text), " ")
	}
	return m
}
