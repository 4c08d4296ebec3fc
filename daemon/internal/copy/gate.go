// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"sync"
	"time"
)

// gate bounds the copy's bytes in flight to the pacer's limit, because a guest's request waits for
// earlier requests at the device. Pauses between large requests would only make long waits rarer.
type gate struct {
	pace Pacer

	turn     chan struct{} // holds the place of the next request
	mu       sync.Mutex
	left     sync.Cond
	inFlight int64
}

func newGate(pace Pacer) *gate {
	g := &gate{pace: pace, turn: make(chan struct{}, 1)}
	g.left.L = &g.mu
	return g
}

// enter waits until n more bytes may be in flight. With nothing in flight it does not wait.
func (g *gate) enter(n int64) {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	for _, rest := g.pace.Allow(); rest > 0; _, rest = g.pace.Allow() {
		<-time.After(min(rest, maxRest))
		if rest <= maxRest {
			break
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.inFlight > 0 {
		if allowed, _ := g.pace.Allow(); g.inFlight+n <= allowed {
			break
		}
		g.left.Wait()
	}
	g.inFlight += n
}

func (g *gate) leave(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight -= n
	g.left.Signal()
}

// pieceBytes returns the size of the next request. Two requests fit into the limit: a write and a
// read.
func (g *gate) pieceBytes() int {
	allowed, _ := g.pace.Allow()
	piece := int64(chunkBytes)
	for piece > minPieceBytes && 2*piece > allowed {
		piece /= 2
	}
	return int(piece)
}

type pacedEnd struct {
	End

	gate *gate
}

func (s *Spec) paced(src, dst End) (End, End) {
	if s.Pace == nil {
		return src, dst
	}
	g := newGate(s.Pace)
	return &pacedEnd{src, g}, &pacedEnd{dst, g}
}

func (e *pacedEnd) ReadAt(p []byte, off int64) (int, error) { return e.transfer(e.End.ReadAt, p, off) }

func (e *pacedEnd) WriteAt(p []byte, off int64) (int, error) {
	return e.transfer(e.End.WriteAt, p, off)
}

func (e *pacedEnd) transfer(move func([]byte, int64) (int, error), p []byte, off int64) (moved int, err error) {
	for moved < len(p) && err == nil {
		piece := p[moved:min(moved+e.gate.pieceBytes(), len(p))]
		e.gate.enter(int64(len(piece)))
		var n int
		n, err = move(piece, off+int64(moved))
		e.gate.leave(int64(len(piece)))
		e.gate.pace.Moved(int64(n))
		moved += n
	}
	return moved, err
}
