// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/volferry/volferry/test/lab"
)

// cpuWaits has how long tasks of this machine have waited for a processor, as the kernel counts it
// (/proc/pressure/cpu). A guest that gets no processor writes nothing, whatever the daemon does:
// this time is no stall of a move.
type cpuWaits struct {
	mu      sync.Mutex
	samples []cpuSample // oldest first
}

type cpuSample struct {
	at     time.Time
	waited time.Duration // since the boot
}

// waits has the waits since the begin of the tests.
var waits cpuWaits

// sampleEvery is short compared with worstStall.
const sampleEvery = 50 * time.Millisecond

// watch takes samples until the tests end. A kernel that does not count has none.
func (w *cpuWaits) watch() {
	for ; ; time.Sleep(sampleEvery) {
		waited, err := readCPUWaits()
		if err != nil {
			fmt.Println("times without a processor count as stalls:", err)
			return
		}
		w.mu.Lock()
		w.samples = append(w.samples, cpuSample{time.Now(), waited})
		w.mu.Unlock()
	}
}

func readCPUWaits() (time.Duration, error) {
	data, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0, err
	}
	_, total, _ := strings.Cut(string(data), "total=")
	var microseconds int64
	if _, err := fmt.Sscan(total, &microseconds); err != nil {
		return 0, fmt.Errorf("read /proc/pressure/cpu: %w", err)
	}
	return time.Duration(microseconds) * time.Microsecond, nil
}

// in returns for how long tasks waited between the first and the last sample of a span, 0 if it
// does not have two.
func (w *cpuWaits) in(s span) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, _ := slices.BinarySearchFunc(w.samples, s.from, func(c cpuSample, t time.Time) int { return c.at.Compare(t) })
	end, _ := slices.BinarySearchFunc(w.samples, s.to, func(c cpuSample, t time.Time) int { return c.at.Compare(t) })
	if end-first < 2 {
		return 0
	}
	return w.samples[end-1].waited - w.samples[first].waited
}

// longestStall is longestGap, less the waits for a processor in that gap.
func longestStall(h *lab.History, s span) (longest time.Duration) {
	if now := time.Now(); s.to.After(now) {
		s.to = now
	}
	for from, to := range h.Gaps(s.from, s.to) {
		longest = max(longest, to.Sub(from)-waits.in(span{from, to}))
	}
	return longest
}

func TestTheTimeWithoutAProcessorIsWhatTheKernelCountedInASpan(t *testing.T) {
	second := func(n float64) time.Time { return time.Unix(0, 0).Add(time.Duration(n * float64(time.Second))) }
	w := cpuWaits{samples: []cpuSample{{second(1), 5 * time.Second}, {second(2), 5500 * time.Millisecond}, {second(3), 6 * time.Second}}}
	for _, c := range []struct {
		from, to float64
		want     time.Duration
	}{
		{0, 4, time.Second}, {1, 2.5, 500 * time.Millisecond}, {1.5, 4, 500 * time.Millisecond}, {1.5, 2.5, 0}, {4, 5, 0}, {0, 0.5, 0},
	} {
		if got := w.in(span{second(c.from), second(c.to)}); got != c.want {
			t.Errorf("from %v to %v: %v, want %v", c.from, c.to, got, c.want)
		}
	}
	if _, err := readCPUWaits(); err != nil {
		t.Logf("this kernel does not count: %v", err)
	}
}
