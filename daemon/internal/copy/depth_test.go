// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// plant is a simulated storage; only its time per chunk matters.
type plant func()

// sweepOver visits a volume of this many chunks with an adaptive depth. It returns the duration,
// and the mean number of chunks in flight after the adaptation.
func sweepOver(t *testing.T, chunks int64, take plant) (took time.Duration, mean float64) {
	t.Helper()
	begin := time.Now()
	var inFlight, visits, sum atomic.Int64
	data := &end{size: chunks * chunkBytes}
	err := sweep(context.Background(), adaptiveDepth(), 1, spans(data.size, noSkip, data), func(context.Context, span, []byte) error {
		now := inFlight.Add(1)
		if visits.Add(1) > chunks/2 {
			sum.Add(now)
		}
		take()
		inFlight.Add(-1)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return time.Since(begin), float64(sum.Load()) / float64(chunks/2)
}

// end is an image that is data throughout.
type end struct {
	End

	size int64
}

func (e *end) Extent(int64) (until int64, data bool, err error) { return e.size, true, nil }

// TestMoreIsInFlightWhereEachChunkTakesLong: a storage that works on all chunks in parallel needs
// little more than half the time.
func TestMoreIsInFlightWhereEachChunkTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chunks, latency = 1 << 14, 20 * time.Millisecond
		took, mean := sweepOver(t, chunks, func() { <-time.After(latency) })
		if least := chunks * latency / maxWorkers; took > least*12/10 {
			t.Errorf("it took %s, and %s at the least", took, least)
		}
		if mean < 0.9*maxWorkers {
			t.Errorf("%.1f chunks are in flight, want %d", mean, maxWorkers)
		}
	})
}

// TestNoMoreIsInFlightWhereThatIsNoFaster: a storage that works on one chunk at a time queues the
// others.
func TestNoMoreIsInFlightWhereThatIsNoFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		device := make(chan struct{}, 1)
		_, mean := sweepOver(t, 1<<16, func() {
			device <- struct{}{}
			<-time.After(time.Millisecond)
			<-device
		})
		if most := defaultWorkers + 1.0; mean > most {
			t.Errorf("%.1f chunks are in flight, want %.1f at the most", mean, most)
		}
	})
}

// TestADepthThatIsWorthNothingAnyMoreIsGivenUp uses a network with a latency that falls in the
// middle.
func TestADepthThatIsWorthNothingAnyMoreIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chunks = 1 << 16
		device := make(chan struct{}, 1)
		var visits atomic.Int64
		_, mean := sweepOver(t, chunks, func() {
			if visits.Add(1) < chunks/4 {
				<-time.After(20 * time.Millisecond)
				return
			}
			device <- struct{}{}
			<-time.After(time.Millisecond)
			<-device
		})
		if most := defaultWorkers + 2.0; mean > most {
			t.Errorf("%.1f chunks are in flight, want %.1f at the most", mean, most)
		}
	})
}
