// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of CPU time in /proc, which is the same on every Linux.
const tick = 10 * time.Millisecond

// ProcessTime is the CPU time of a process since its beginning.
func ProcessTime(pid int) (time.Duration, error) {
	own, _, err := processTimes(pid)
	return own, err
}

// FamilyTime is the CPU time of a process and of the children that it has waited for.
func FamilyTime(pid int) (time.Duration, error) {
	own, children, err := processTimes(pid)
	return own + children, err
}

func processTimes(pid int) (own, children time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read CPU time: %w", err)
	}
	// The name before may have blanks in it.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0, 0, fmt.Errorf("read CPU time: %q", text)
	}
	if own, err = ticks(fields[11:13]); err != nil {
		return 0, 0, err
	}
	children, err = ticks(fields[13:15])
	return own, children, err
}

// OwnTime is the CPU time of this program.
func OwnTime() (time.Duration, error) { return usage(syscall.RUSAGE_SELF) }

// ChildrenTime is the CPU time of the children that this program has waited for.
func ChildrenTime() (time.Duration, error) { return usage(syscall.RUSAGE_CHILDREN) }

func usage(who int) (time.Duration, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(who, &r); err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
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

// Memory is what a process has of the machine's.
type Memory struct {
	Resident int64 // bytes
	Own      int64 // the part of it that is not of a file
	Peak     int64 // the most that Resident was, see ResetPeak
}

// MemoryOf reads the memory of a process.
func MemoryOf(pid int) (m Memory, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmRSS": &m.Resident, "RssAnon": &m.Own, "VmHWM": &m.Peak}[name]
		if into == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return m, fmt.Errorf("read memory: %w", err)
		}
		*into = kib << 10
	}
	return m, nil
}

// WrittenBy are the bytes that a process has given to the disk since its beginning.
func WrittenBy(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, fmt.Errorf("read what was written: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "write_bytes: "); found {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read what was written: %w", err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("read what was written: %q", text)
}

// ResetPeak makes the peak of a process's memory what it has now.
func ResetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("reset peak of memory: %w", err)
	}
	return nil
}

// ChildPeak is the most memory that a child had which this program has waited for, in bytes.
func ChildPeak(ended *os.ProcessState) int64 {
	if r, ok := ended.SysUsage().(*syscall.Rusage); ok {
		return r.Maxrss << 10
	}
	return 0
}
