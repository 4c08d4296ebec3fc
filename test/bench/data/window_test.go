// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// acked is a history of operations that were acknowledged so many ms after begin, each of which
// took as many µs.
func acked(begin time.Time, ms ...int) *lab.History {
	h := &lab.History{}
	for _, n := range ms {
		h.Acks = append(h.Acks, lab.Ack{
			Op: workload.Op{Count: 1}, HostTime: begin.Add(time.Duration(n) * time.Millisecond), Latency: time.Duration(n) * time.Microsecond,
		})
	}
	return h
}

func between(begin time.Time, from, to int) span {
	return span{begin.Add(time.Duration(from) * time.Millisecond), begin.Add(time.Duration(to) * time.Millisecond)}
}

func TestAWindowHasWhatWasAcknowledgedInItAndTheGapsThatReachIntoIt(t *testing.T) {
	begin := time.Now()
	got := windowOf(acked(begin, 10, 20, 90, 100, 300), between(begin, 15, 115))
	want := window{
		Seconds: 0.1, Acked: 3, PerSecond: 30, LongestGapMS: 200,
		latencies: latencies{P50MS: 0.09, P99MS: 0.1, P999MS: 0.1, MaxMS: 0.1},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(window{})); diff != "" {
		t.Errorf("window (-want +got):\n%s", diff)
	}
}

func TestAFlushIsMeasuredApartFromItsWriteWhereThereIsOne(t *testing.T) {
	begin := time.Now()
	h := acked(begin, 10, 20, 30)
	h.Acks[2].Op.Flush, h.Acks[2].Flush = true, 25*time.Microsecond
	got := windowOf(h, between(begin, 0, 40))
	if want := (latencies{P50MS: 0.01, P99MS: 0.02, P999MS: 0.02, MaxMS: 0.02}); got.Write == nil || *got.Write != want {
		t.Errorf("writes took %+v, want %+v", got.Write, want)
	}
	if want := (latencies{P50MS: 0.025, P99MS: 0.025, P999MS: 0.025, MaxMS: 0.025}); got.Flush == nil || *got.Flush != want {
		t.Errorf("flushes took %+v, want %+v", got.Flush, want)
	}
}

func TestWhatAGuestWroteInASpanIsWhatWasAcknowledgedInIt(t *testing.T) {
	begin := time.Now()
	if got := writtenIn(acked(begin, 10, 20, 90, 100), between(begin, 15, 95)); got != 2*workload.BlockSize {
		t.Errorf("%d bytes were written, want %d", got, 2*workload.BlockSize)
	}
}
