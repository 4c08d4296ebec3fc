// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"sync"
	"time"
)

const minPieceBytes = 64 << 10

// Pacer bounds the copy's bytes in flight, for the benefit of other users of the storage.
type Pacer interface {
	// Allow returns the allowed bytes in flight, and the pause before each request. It is called
	// before every request, and must not block.
	Allow() (inFlightBytes int64, rest time.Duration)
	// Moved is called with the bytes of every finished request. It must not block.
	Moved(bytes int64)
	// Duty returns the share of time that a child process may work: its requests cannot be
	// delayed.
	Duty() float64
}

const (
	paceTick = 100 * time.Millisecond
	// quietEvery is how often the copy pauses to measure the guest's latency without it. The pause
	// has quietTicks ticks: one to drain the requests in flight, the others to measure, 1.3 % of
	// the time. Before the copy starts there is nothing to drain.
	quietEvery      = 30 * time.Second
	quietTicks      = 4
	firstQuietTicks = quietTicks - 1
	// After a pause the copy has no limit for fullTicks, to measure its full speed: 0.7 % of the
	// time. A copy starts slowly, so the time is extended, up to maxFullTicks, while each look
	// shows more than stillFaster times the previous speed.
	fullTicks    = 2
	maxFullTicks = 6
	stillFaster  = 1.2
	// relearnAfter is how long the guest may suffer from the slowest copy, or make requests of a
	// new kind, before the copy pauses again to measure the latency.
	relearnAfter = 5 * time.Second
	// If the copy has less than outdated times its kept share, the measured full speed is too old:
	// the pacer did not cause the slowness. A copy with up to shareMargin times the share is not
	// slowed further.
	outdated    = 0.5
	shareMargin = 1.1
	// A guest is idle after idleTicks without a request. After fewer ticks its requests may just
	// be slow.
	idleTicks     = 3
	startInFlight = 1 << 20
	maxInFlight   = 16 << 20
	minInFlight   = minPieceBytes
	// Requests wait only if a single smallest request in flight is still too much. With maxRest,
	// 64 KiB move in a millisecond or two. A copy that never ends would harm the guest too: its
	// newest writes stay in its overlay.
	restStep = 125 * time.Microsecond
	maxRest  = time.Millisecond
)

// GuestPacer slows a copy down for a guest by limiting the copy's bytes in flight, because a
// guest's request waits for these. It compares the mean latency of the guest's reads, writes and
// flushes with their latency while the copy is paused. A latency over 1.5 times as high reduces
// the limit, at most by half. Otherwise it grows.
//
// The copy keeps a share of its unlimited speed. If the guest loses more by the longer copy than
// it gains, the copy gets no limit until its next pause (reliefWatch).
type GuestPacer struct {
	sample    func() (GuestLatency, bool)
	keepShare float64

	mu         sync.Mutex
	inFlight   int64
	rest       time.Duration
	quietUntil time.Time // a time: a blocked sample must not prolong the pause
	paced      time.Duration
	moved      int64 // since the last look
	state      PaceState

	// Only Run uses these.
	last       GuestLatency
	watches    [3]latencyWatch // of reads, writes, flushes
	quietLeft  int             // looks until the copy may continue
	sinceQuiet time.Duration
	atLeast    time.Duration // time at the slowest copy
	relearn    time.Duration // how long the guest may suffer
	speed      speedWatch
	relief     reliefWatch
	wasFull    bool
	idle       int // looks at a guest without requests
	full       int // looks without a limit
	sinceFull  time.Duration
	heldTo     int64 // bytes in flight before the present time without a limit
}

// NewGuestPacer returns a pacer. sample returns the counters of the guest's disk, and false if
// they are unknown; only Run calls it, and it may block. Run begins with a short pause of the
// copy. The copy keeps the share keepShare, 0 to 1, of its speed, however much the guest suffers.
// With 0 the copy's duration has no bound.
func NewGuestPacer(sample func() (GuestLatency, bool), keepShare float64) *GuestPacer {
	return &GuestPacer{sample: sample, keepShare: keepShare, inFlight: startInFlight, heldTo: startInFlight, sinceFull: quietEvery, relearn: relearnAfter}
}

// Run watches the guest until ctx ends. Then the pacer limits nothing.
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

// SetKeepShare changes the kept share of the copy's speed; 1 means no limit.
func (p *GuestPacer) SetKeepShare(share float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if share == p.keepShare {
		return
	}
	p.keepShare, p.relief = share, reliefWatch{} // its result depends on the share
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

// Paced returns how long the copy was limited for the guest.
func (p *GuestPacer) Paced() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paced
}

// State returns the pacer's present activity and its reason.
func (p *GuestPacer) State() PaceState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *GuestPacer) look() { p.lookAt(p.sample()) }

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
	idle := now == p.last || !ok // without a guest the copy needs no limit
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

func (p *GuestPacer) learn(now GuestLatency, ok, idle bool) {
	p.quietLeft--
	if idle {
		p.quietLeft = 0
	}
	for i, kind := range now.kinds() {
		watch := &p.watches[i]
		if p.quietLeft == quietTicks-1 { // drains the requests in flight
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

// measureFull removes the copy's limit for a few looks; held is the limit after that. Hold mu.
func (p *GuestPacer) measureFull(held int64) {
	p.full, p.sinceFull, p.heldTo = 1, 0, held
	p.rest, p.inFlight, p.speed, p.relief = 0, maxInFlight, speedWatch{}, reliefWatch{}
	p.state = PaceState{Doing: PaceMeasures}
}

// lookAtFull measures the speed of the unlimited copy. The copy gets its previous limit back if
// the guest suffers.
func (p *GuestPacer) lookAtFull(moved int64, s strain) {
	before := p.speed.full
	p.speed.learn(max(moved, int64(before))) // a flush may slow a look
	if p.full > 1 {                          // omits the first, slow look
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

// shrink slows the copy. Hold mu.
func (p *GuestPacer) shrink(s strain, moved int64) {
	p.state = PaceState{Doing: PaceGivesWay, Requests: requestKinds[s.kind], Mean: s.mean, Tolerated: p.watches[s.kind].tolerated}
	if p.relief.letGo {
		p.state.Doing = PaceDoesNotHelp
		if p.relief.whileLetGo(s, moved); !p.relief.letGo {
			p.measureFull(p.heldTo) // the guest's activity, or the disk, has changed
			p.relief.again = true
		}
		return
	}
	spare := p.speed.spare(p.keepShare)
	switch {
	case spare < outdated && p.sinceFull >= relearnAfter:
		p.measureFull(min(p.inFlight, startInFlight))
	case spare < 1:
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

// keepsShare handles a look at a suffering guest while the copy keeps its share of speed. Hold mu.
func (p *GuestPacer) keepsShare(s strain, moved int64) {
	p.state.Doing = PaceKeepsShare
	p.atLeast += paceTick
	if p.relief.whileHeld(s, moved); p.relief.letGo {
		p.state.Doing = PaceDoesNotHelp
		p.heldTo, p.rest, p.inFlight, p.atLeast = p.inFlight, 0, maxInFlight, 0
	}
}

// grow speeds the copy up. Hold mu.
func (p *GuestPacer) grow(s strain) {
	switch {
	case p.inFlight >= maxInFlight:
		p.state = PaceState{Doing: PaceFree}
	case s.worst > 0: // otherwise the previous reason stays
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

// standStill pauses the copy for so many looks. Hold mu.
func (p *GuestPacer) standStill(ticks int) {
	p.sinceQuiet, p.atLeast, p.quietLeft = 0, 0, ticks
	p.quietUntil = time.Now().Add(time.Duration(ticks) * paceTick)
	p.state = PaceState{Doing: PaceMeasures}
}
