// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"sync"
	"time"
)

// minPieceBytes is the smallest request that a chunk is divided into.
const minPieceBytes = 64 << 10

// Pacer bounds what a copy has in flight, for the sake of others.
type Pacer interface {
	// Allow returns how many bytes may be in flight, and how long each request rests
	// before it begins. It is asked before every request, and must not block.
	Allow() (inFlightBytes int64, rest time.Duration)
}

// Numbers of the guest's pacer.
const (
	// paceTick is how often the guest's latency is looked at.
	paceTick = 100 * time.Millisecond
	// quietEvery is how often the copy stands still to see the guest's latency
	// without it, because what the guest does changes; quietTicks is for how
	// long: one to drain what is in flight, the others to measure. 1.3 % of the time.
	quietEvery = 30 * time.Second
	quietTicks = 4
	// relearnAfter is for how long the guest may suffer under the least copy, or do
	// something that it did not do while the copy stood still last, before the copy
	// stands still again to measure the guest's latency without it.
	relearnAfter = 5 * time.Second
	// What is in flight begins at startInFlight. It grows by an eighth with each look at
	// a guest that is well, and shrinks, by half at the most, as much as the
	// latency is too high.
	startInFlight = 1 << 20
	maxInFlight   = 16 << 20
	minInFlight   = minPieceBytes
	// A request rests only where one of the smallest at a time is still too much. With
	// maxRest, 64 KiB are read or written in a millisecond and a little: a copy that
	// never ends keeps the guest's newest writes in its overlay, which is no kindness
	// either.
	restStep = 125 * time.Microsecond
	maxRest  = time.Millisecond
)

// GuestPacer gives way to a guest. It controls how many bytes of the copy are in flight,
// because these are what a request of the guest waits for. It compares the mean latency of
// the guest's reads, writes and flushes with their latency while the copy stands still.
// Each look at a guest whose latency is more than 1.5 times as high takes bytes from what is
// in flight, half at the most; each look at another guest adds an eighth. So it grows and
// shrinks by factors (multiplicative increase, multiplicative decrease).
type GuestPacer struct {
	sample func() (GuestLatency, bool)

	mu         sync.Mutex
	inFlight   int64
	rest       time.Duration
	quietUntil time.Time // a time, so that a sample that hangs holds up nobody
	paced      time.Duration

	// Of Run alone.
	last       GuestLatency
	watches    [3]latencyWatch // of reads, writes, flushes
	quietLeft  int             // looks until the copy may go on
	sinceQuiet time.Duration
	atLeast    time.Duration // for how long the guest has suffered under the least copy
}

// NewGuestPacer returns a pacer that measures with sample: it returns the counters of the
// guest's disk, and false if they could not be read. Only Run calls sample, which may
// block. Run begins by letting the copy stand still for a moment, to learn the guest's
// latency without it.
func NewGuestPacer(sample func() (GuestLatency, bool)) *GuestPacer {
	return &GuestPacer{sample: sample, inFlight: startInFlight}
}

// Run watches the guest until ctx ends. The pacer holds nothing back after that.
func (p *GuestPacer) Run(ctx context.Context) {
	tick := time.NewTicker(paceTick)
	defer tick.Stop()
	p.mu.Lock()
	p.standStill()
	p.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			p.mu.Lock()
			defer p.mu.Unlock()
			p.inFlight, p.rest, p.quietUntil = maxInFlight, 0, time.Time{}
			return
		case <-tick.C:
			p.look()
		}
	}
}

// Allow implements Pacer.
func (p *GuestPacer) Allow() (inFlightBytes int64, rest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inFlight, max(p.rest, time.Until(p.quietUntil))
}

// Paced returns how long the copy has been held back for the guest's sake so far.
func (p *GuestPacer) Paced() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paced
}

// look is one tick.
func (p *GuestPacer) look() {
	now, ok := p.sample()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight < maxInFlight || p.quietLeft > 0 {
		p.paced += paceTick
	}
	if p.quietLeft > 0 {
		p.learn(now, ok)
		return
	}
	strain, known, learned := p.strain(now, ok)
	idle := now == p.last
	p.last = now
	p.sinceQuiet += paceTick
	if p.sinceQuiet >= quietEvery || p.atLeast >= relearnAfter || !learned && p.sinceQuiet >= relearnAfter {
		p.standStill()
		return
	}
	switch {
	case known && strain > 1:
		p.shrink(strain)
	case known || idle || !ok: // without a guest there is nothing to give way to
		p.grow()
	}
}

// learn is a look while the copy stands still.
func (p *GuestPacer) learn(now GuestLatency, ok bool) {
	p.quietLeft--
	for i, kind := range now.kinds() {
		watch := &p.watches[i]
		if p.quietLeft == quietTicks-1 { // of what was in flight
			watch.restart(kind, ok)
			continue
		}
		watch.learn(kind, ok)
		if p.quietLeft == 0 {
			watch.learned()
		}
	}
}

// strain is the worst of the latencies of all kinds, where 1 is what is tolerated. It is
// learned unless the guest does something that it did not while the copy stood still.
func (p *GuestPacer) strain(now GuestLatency, ok bool) (worst float64, known, learned bool) {
	learned = true
	for i, kind := range now.kinds() {
		watch := &p.watches[i]
		mean, is := watch.mean(kind, ok)
		switch {
		case !is:
		case watch.tolerated == 0:
			known, learned = true, false
		default:
			worst, known = max(worst, float64(mean)/float64(watch.tolerated)), true
		}
	}
	return worst, known, learned
}

// shrink gives way. The lock is held.
func (p *GuestPacer) shrink(strain float64) {
	if p.inFlight > minInFlight {
		p.inFlight = max(minInFlight, int64(float64(p.inFlight)*max(0.5, 1/strain)))
		return
	}
	p.atLeast += paceTick
	p.rest = min(p.rest+restStep, maxRest)
}

// grow takes more. The lock is held.
func (p *GuestPacer) grow() {
	p.atLeast = 0
	if p.rest > 0 {
		p.rest -= restStep
		return
	}
	p.inFlight = min(maxInFlight, p.inFlight+max(p.inFlight/8, minPieceBytes/4))
}

// standStill begins a quiet time. The lock is held.
func (p *GuestPacer) standStill() {
	p.sinceQuiet, p.atLeast, p.quietLeft = 0, 0, quietTicks
	p.quietUntil = time.Now().Add(quietTicks * paceTick)
}
