// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// allows is a Pacer.
type allows struct{ inFlight atomic.Int64 }

func (*allows) Moved(int64)   {}
func (*allows) Duty() float64 { return 1 }

func (a *allows) Allow() (int64, time.Duration) { return a.inFlight.Load(), 0 }

// slowMemory takes a millisecond for each transfer, and records the bytes in flight.
type slowMemory struct {
	*memoryEnd

	inFlight *atomic.Int64
	most     *atomic.Int64
}

func (e slowMemory) transfer(move func([]byte, int64) (int, error), p []byte, off int64) (int, error) {
	now := e.inFlight.Add(int64(len(p)))
	defer e.inFlight.Add(-int64(len(p)))
	for most := e.most.Load(); now > most && !e.most.CompareAndSwap(most, now); most = e.most.Load() {
	}
	<-time.After(time.Millisecond)
	return move(p, off)
}

func (e slowMemory) ReadAt(p []byte, off int64) (int, error) {
	return e.transfer(e.memoryEnd.ReadAt, p, off)
}

func (e slowMemory) WriteAt(p []byte, off int64) (int, error) {
	return e.transfer(e.memoryEnd.WriteAt, p, off)
}

func TestNoMoreIsInFlightThanThePacerAllows(t *testing.T) {
	for _, allowed := range []int64{1, 64 << 10, 256 << 10, 3 << 20} {
		synctest.Test(t, func(t *testing.T) {
			var inFlight, most atomic.Int64
			pace := &allows{}
			pace.inFlight.Store(allowed)
			spec := &Spec{Verify: true, Pace: pace}
			src, dst := newMemoryEnd(16), newMemoryEnd(16)
			for i := range src.content {
				src.content[i] = byte(1 + i%251)
			}
			pacedSrc, pacedDst := spec.paced(slowMemory{src, &inFlight, &most}, slowMemory{dst, &inFlight, &most})
			s := newStream(spec, pacedSrc, pacedDst, newMeter(nil, src.Size()))
			if err := errors.Join(s.run(t.Context()), s.verify(t.Context())); err != nil {
				t.Fatal(err)
			}
			if bound := max(allowed, minPieceBytes); most.Load() > bound {
				t.Errorf("%d bytes were in flight, %d allowed", most.Load(), allowed)
			} else if most.Load() < bound*3/4 {
				t.Errorf("only %d bytes were in flight, %d allowed", most.Load(), allowed)
			}
		})
	}
}
