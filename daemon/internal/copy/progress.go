// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"sync"
	"time"
)

// Phase is the activity of a copy.
type Phase string

// A copy has one of the phases clone, offload and copy; copy also follows an offload that the
// storage refuses.
const (
	PhaseClone Phase = "clone"
	// PhaseOffload: the storage copies by itself.
	PhaseOffload Phase = "offload"
	PhaseCopy    Phase = "copy"
	PhaseFlush   Phase = "flush"
	PhaseVerify  Phase = "verify"
)

// Progress is the progress of a phase. BytesDone includes holes and the work of earlier runs;
// RateBytesPerSecond covers only the bytes that move now.
type Progress struct {
	Phase              Phase
	BytesTotal         int64
	BytesDone          int64
	RateBytesPerSecond int64
}

// reportInterval is how often progress is reported, in addition to a phase's start and end.
const reportInterval = 200 * time.Millisecond

// rateWindow smooths the rate. In the first rateWindow of a phase the rate is the mean since its
// start: the first bytes go into memory, faster than to the storage.
const rateWindow = 10 * time.Second

// meter counts and reports. Reports never overlap.
type meter struct {
	report func(Progress)

	mu       sync.Mutex
	now      Progress
	moved    int64
	rate     float64
	reported time.Time
	began    time.Time
}

func newMeter(report func(Progress), totalBytes int64) *meter {
	if report == nil {
		report = func(Progress) {}
	}
	return &meter{report: report, now: Progress{BytesTotal: totalBytes}}
}

func (m *meter) begin(phase Phase, doneBytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = Progress{Phase: phase, BytesTotal: m.now.BytesTotal, BytesDone: doneBytes}
	m.moved, m.rate, m.reported = 0, 0, time.Now()
	m.began = m.reported
	m.report(m.now)
}

func (m *meter) add(doneBytes, movedBytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.BytesDone += doneBytes
	m.moved += movedBytes
	elapsed := time.Since(m.reported)
	if elapsed < reportInterval && m.now.BytesDone < m.now.BytesTotal {
		return
	}
	if elapsed > 0 {
		weight := min(1, float64(elapsed)/float64(min(rateWindow, time.Since(m.began))))
		m.rate += weight * (float64(m.moved)/elapsed.Seconds() - m.rate)
	}
	m.now.RateBytesPerSecond = int64(m.rate)
	m.moved, m.reported = 0, time.Now()
	m.report(m.now)
}
