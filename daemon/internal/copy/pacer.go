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
	// Moved is called with the bytes of every request that has ended. It must not block.
	Moved(bytes int64)
	// Duty returns for which part of the time a child process may work, whose requests
	// nobody can hold up.
	Duty() float64
}

// Numbers of the guest's pacer.
const (
	// paceTick is how often the guest's latency is looked at.
	paceTick = 100 * time.Millisecond
	// quietEvery is how often the copy stands still to see the guest's latency
	// without it, because what the guest does changes; quietTicks is for how
	// long: one to drain what is in flight, the others to measure. 1.3 % of the time.
	// Before the copy begins there is nothing to drain.
	quietEvery      = 30 * time.Second
	quietTicks      = 4
	firstQuietTicks = quietTicks - 1
	// fullTicks is for how long the copy is not held back after that, to see how fast it
	// would be: 0.7 % of the time. It goes on, up to maxFullTicks, for as long as each look
	// sees the copy at more than stillFaster of the speed that the last one saw: a copy that
	// begins is slow at first, and would be held to a part of that for half a minute.
	fullTicks    = 2
	maxFullTicks = 6
	stillFaster  = 1.2
	// relearnAfter is for how long the guest may suffer under the least copy, or do
	// something that it did not do while the copy stood still last, before the copy
	// stands still again to measure the guest's latency without it.
	relearnAfter = 5 * time.Second
	// What the speed of the copy is held against is too old if the copy has less than
	// outdated of the share that it keeps: it is not that slow because of the pacer. A copy
	// that has up to shareMargin times that share is left as it is.
	outdated    = 0.5
	shareMargin = 1.1
	// idleTicks is for how long a guest has to do nothing until it counts as idle: one whose
	// requests take that long because of the copy does not seem to do anything either.
	idleTicks = 3
	// What is in flight begins at startInFlight, unless the guest did not mind the copy that
	// was not held back. It grows by an eighth with each look at a guest that is well, doubles
	// where the guest does nothing, and shrinks, by half at the most, as much as the latency
	// is too high.
	startInFlight = 1 << 20
	maxInFlight   = 16 << 20
	minInFlight   = minPieceBytes
	// A request rests only where one of the smallest at a time is still too much. With
	// maxRest, 64 KiB are read or written in a millisecond or two: a copy that
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
//
// It gives way only as far as the copy keeps a share of the speed that it has when it is not
// held back. Where the guest waits for something else that the copy needs, the processors
// above all, less in flight makes the copy slow and helps the guest little, and the guest
// suffers for longer. Where the guest loses more than it gains by that the copy is let go, until
// the next time that it stands still (reliefWatch).
type GuestPacer struct {
	sample    func() (GuestLatency, bool)
	keepShare float64

	mu         sync.Mutex
	inFlight   int64
	rest       time.Duration
	quietUntil time.Time // a time, so that a sample that hangs holds up nobody
	paced      time.Duration
	moved      int64 // since the last look
	state      PaceState

	// Of Run alone.
	last       GuestLatency
	watches    [3]latencyWatch // of reads, writes, flushes
	quietLeft  int             // looks until the copy may go on
	sinceQuiet time.Duration
	atLeast    time.Duration // for how long the guest has suffered under the least copy
	relearn    time.Duration // how long it may
	speed      speedWatch
	relief     reliefWatch
	wasFull    bool          // the copy was not held back since the last look
	idle       int           // looks at a guest that has done nothing
	full       int           // looks at the copy since it is not held back for a while, 0 otherwise
	sinceFull  time.Duration // since it was not
	heldTo     int64         // what was in flight before, or before it was let go
}

// NewGuestPacer returns a pacer that measures with sample: it returns the counters of the
// guest's disk, and false if they could not be read. Only Run calls sample, which may
// block. Run begins by letting the copy stand still for a moment, to learn the guest's
// latency without it. The copy keeps keepShare, from 0 to 1, of its speed, however much the
// guest suffers; with 0 it only comes to its end some day.
func NewGuestPacer(sample func() (GuestLatency, bool), keepShare float64) *GuestPacer {
	return &GuestPacer{sample: sample, keepShare: keepShare, inFlight: startInFlight, heldTo: startInFlight, sinceFull: quietEvery, relearn: relearnAfter}
}

// Run watches the guest until ctx ends. The pacer holds nothing back after that.
func (p *GuestPacer) Run(ctx context.Context) {
	tick := time.NewTicker(paceTick)
	defer tick.Stop()
	p.mu.Lock()
	p.standStill(firstQuietTicks)
	p.mu.Unlock()
	p.begin(p.sample())
	for {
		select {
		case <-ctx.Done():
			p.mu.Lock()
			defer p.mu.Unlock()
			p.inFlight, p.rest, p.quietUntil, p.keepShare = maxInFlight, 0, time.Time{}, 1
			return
		case <-tick.C:
			p.look()
		}
	}
}

// begin takes the counters from which the first latency is measured: nothing is in flight.
func (p *GuestPacer) begin(now GuestLatency, ok bool) {
	p.last = now
	for i, kind := range now.kinds() {
		p.watches[i].restart(kind, ok)
	}
}

// Allow implements Pacer.
func (p *GuestPacer) Allow() (inFlightBytes int64, rest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keepShare >= 1 {
		return maxInFlight, 0
	}
	return p.inFlight, max(p.rest, time.Until(p.quietUntil))
}

// SetKeepShare changes the share of its speed that the copy keeps. With 1 it is not held back.
func (p *GuestPacer) SetKeepShare(share float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if share == p.keepShare {
		return
	}
	p.keepShare, p.relief = share, reliefWatch{} // it was judged by the share
	p.standStill(quietTicks)
}

// Moved implements Pacer.
func (p *GuestPacer) Moved(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved += bytes
}

// Duty implements Pacer.
func (p *GuestPacer) Duty() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.keepShare, float64(p.inFlight)/maxInFlight)
}

// Paced returns how long the copy has been held back for the guest's sake so far.
func (p *GuestPacer) Paced() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paced
}

// State returns what the pacer does now, and why.
func (p *GuestPacer) State() PaceState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// look is one tick.
func (p *GuestPacer) look() { p.lookAt(p.sample()) }

// lookAt is a tick with these counters; ok is false if they could not be read.
func (p *GuestPacer) lookAt(now GuestLatency, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	moved := p.moved
	p.moved = 0
	if p.keepShare >= 1 {
		p.last, p.state, p.sinceFull = now, PaceState{Doing: PaceFree}, quietEvery
		return
	}
	if p.inFlight < maxInFlight || p.quietLeft > 0 {
		p.paced += paceTick
	}
	idle := now == p.last || !ok // without a guest there is nothing to give way to
	p.last = now
	if p.quietLeft > 0 {
		p.learn(now, ok, idle)
		return
	}
	if p.idle++; !idle {
		p.idle = 0
	}
	strain := p.strain(now, ok)
	p.sinceQuiet += paceTick
	p.sinceFull += paceTick
	if p.full > 0 {
		p.lookAtFull(moved, strain)
		return
	}
	if p.wasFull {
		p.speed.learn(moved)
	} else {
		p.speed.add(moved)
	}
	defer func() { p.wasFull = p.inFlight == maxInFlight && p.quietLeft == 0 }()
	if p.atLeast >= p.relearn {
		p.relearn = min(2*p.relearn, quietEvery) // the last time did not help
		p.standStill(quietTicks)
		return
	}
	if p.sinceQuiet >= quietEvery || !strain.learned && p.sinceQuiet >= relearnAfter {
		p.standStill(quietTicks)
		return
	}
	switch {
	case p.idle >= idleTicks:
		p.state = PaceState{Doing: PaceFree}
		p.rest, p.atLeast, p.inFlight = 0, 0, min(maxInFlight, 2*p.inFlight)
	case strain.known && strain.worst > 1:
		p.shrink(strain, moved)
	case strain.known:
		p.grow(strain)
	}
}

// learn is a look while the copy stands still. A guest that does nothing has no latency to be
// learned.
func (p *GuestPacer) learn(now GuestLatency, ok, idle bool) {
	p.quietLeft--
	if idle {
		p.quietLeft = 0
	}
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
	if p.quietLeft > 0 {
		return
	}
	p.quietUntil = time.Time{}
	switch {
	case idle:
		p.rest, p.inFlight = 0, maxInFlight
	case p.keepShare > 0 && p.relief.letGo:
		p.measureFull(p.heldTo)
	case p.keepShare > 0 && p.sinceFull >= quietEvery:
		p.measureFull(p.inFlight)
	}
}

// measureFull does not hold the copy back for a while. Then as much as held is in flight, if the
// guest minds. The lock is held.
func (p *GuestPacer) measureFull(held int64) {
	p.full, p.sinceFull, p.heldTo = 1, 0, held
	p.rest, p.inFlight, p.speed, p.relief = 0, maxInFlight, speedWatch{}, reliefWatch{}
	p.state = PaceState{Doing: PaceMeasures}
}

// lookAtFull is a look while the copy is not held back, to learn how fast it is. What is in
// flight stays as it is if the guest does not mind, and is otherwise what it was before.
func (p *GuestPacer) lookAtFull(moved int64, s strain) {
	before := p.speed.full
	p.speed.learn(max(moved, int64(before))) // one may have met a flush
	if p.full > 1 {                          // and not of the time in which the copy began
		p.relief.full.add(s, moved)
	}
	if p.full < fullTicks || p.full < maxFullTicks && p.speed.full > stillFaster*before {
		p.full++
		return
	}
	p.full, p.wasFull = 0, false
	if s.known && s.worst > 1 {
		p.inFlight = p.heldTo
	}
}

func (p *GuestPacer) strain(now GuestLatency, ok bool) strain {
	s := strain{learned: true}
	for i, kind := range now.kinds() {
		watch := &p.watches[i]
		mean, is := watch.mean(kind, ok)
		switch {
		case !is:
		case watch.tolerated == 0:
			s.known, s.learned = true, false
		default:
			s.known = true
			if worst := float64(mean) / float64(watch.tolerated); worst > s.worst {
				s.worst, s.kind, s.mean, s.excess = worst, i, mean, float64(mean)/float64(watch.idle)-1
			}
		}
	}
	return s
}

// shrink gives way. The lock is held.
func (p *GuestPacer) shrink(s strain, moved int64) {
	p.state = PaceState{Doing: PaceGivesWay, Requests: requestKinds[s.kind], Mean: s.mean, Tolerated: p.watches[s.kind].tolerated}
	if p.relief.letGo {
		p.state.Doing = PaceDoesNotHelp
		if p.relief.whileLetGo(s, moved); !p.relief.letGo {
			p.measureFull(p.heldTo) // what the guest does, or the disk, is not what it was
			p.relief.again = true
		}
		return
	}
	spare := p.speed.spare(p.keepShare)
	switch {
	case spare < outdated && p.sinceFull >= relearnAfter:
		p.measureFull(min(p.inFlight, startInFlight))
	case spare < 1: // it has given way too far
		p.keepsShare(s, moved)
		p.faster()
	case p.inFlight > minInFlight:
		floor := min(1, shareMargin/spare) // so that the copy keeps its share
		factor := max(0.5, 1/s.worst, floor)
		p.inFlight = max(minInFlight, int64(float64(p.inFlight)*factor))
		if factor == floor {
			p.keepsShare(s, moved)
		}
	default:
		p.atLeast += paceTick
		p.rest = min(p.rest+restStep, maxRest)
	}
}

// keepsShare is a look at a guest to whom the copy gives way no further. The lock is held.
func (p *GuestPacer) keepsShare(s strain, moved int64) {
	p.state.Doing = PaceKeepsShare
	p.atLeast += paceTick
	if p.relief.whileHeld(s, moved); p.relief.letGo {
		p.state.Doing = PaceDoesNotHelp
		p.heldTo, p.rest, p.inFlight, p.atLeast = p.inFlight, 0, maxInFlight, 0
	}
}

// grow takes more. The lock is held.
func (p *GuestPacer) grow(s strain) {
	switch {
	case p.inFlight >= maxInFlight:
		p.state = PaceState{Doing: PaceFree}
	case s.worst > 0: // or what it was held back for is still why
		p.state = PaceState{Doing: PaceGivesWay, Requests: requestKinds[s.kind], Mean: s.mean, Tolerated: p.watches[s.kind].tolerated}
	}
	p.atLeast, p.relearn = 0, relearnAfter
	p.faster()
}

func (p *GuestPacer) faster() {
	if p.rest > 0 {
		p.rest -= restStep
		return
	}
	p.inFlight = min(maxInFlight, p.inFlight+max(p.inFlight/8, minPieceBytes/4))
}

// standStill begins a quiet time. The lock is held.
func (p *GuestPacer) standStill(ticks int) {
	p.sinceQuiet, p.atLeast, p.quietLeft = 0, 0, ticks
	p.quietUntil = time.Now().Add(time.Duration(ticks) * paceTick)
	p.state = PaceState{Doing: PaceMeasures}
}
