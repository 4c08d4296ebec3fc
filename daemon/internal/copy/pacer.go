// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"sync"
	"time"
)

// Pacer slows a copy down for the sake of others.
type Pacer interface {
	// Delay is how long to wait before the next chunk. Every worker asks before
	// every chunk; the call must not block.
	Delay() time.Duration
}

// Numbers of the guest's pacer.
const (
	// paceTick is how often the guest's latency is looked at.
	paceTick = 250 * time.Millisecond
	// quietEvery is how often the copy stands still to see the guest's latency
	// without it, because what the guest does changes; quietTicks is for how
	// long: one to drain what is in flight, one to measure. 1.7 % of the time.
	quietEvery = 30 * time.Second
	quietTicks = 2
	// tolerated is the mean latency, over the idle one, at which the copy gives
	// way; toleratedSlack keeps it from fighting over what a disk does anyway: on
	// a fast one the idle latency is below the noise of a busy host.
	tolerated      = 1.5
	toleratedSlack = 2 * time.Millisecond
	// minSampleWrites makes a mean.
	minSampleWrites = 4
	// The delay of each worker doubles from delayStep, and shrinks by an eighth or
	// by delayStep. At maxDelay eight workers still move 32 MiB/s: a copy that never ends keeps the guest's
	// newest writes in its overlay, which is no kindness either.
	delayStep = 5 * time.Millisecond
	maxDelay  = 250 * time.Millisecond
)

// GuestPacer gives way to a guest: when its mean write latency rises above 1.5
// times what it is while the copy stands still, and by more than 2 ms, the
// copy's delay is doubled; while it is below, the delay shrinks.
type GuestPacer struct {
	sample func() (writes int64, total time.Duration, ok bool)

	mu         sync.Mutex
	delay      time.Duration
	quietUntil time.Time // a time, so that a sample that hangs holds up nobody
	paced      time.Duration

	// Of Run alone.
	baseline   time.Duration
	quietLeft  int  // looks until the copy may go on
	measured   bool // the two below are set
	writes     int64
	total      time.Duration
	sinceQuiet time.Duration
}

// NewGuestPacer paces by sample: the number of the guest's writes so far, the
// sum of their latencies, and whether that could be read. Only Run calls it,
// and it may block. Run begins by letting the copy stand still for half a second,
// to learn the guest's latency without it.
func NewGuestPacer(sample func() (writes int64, total time.Duration, ok bool)) *GuestPacer {
	return &GuestPacer{sample: sample}
}

// Run watches the guest until ctx ends. The pacer delays nothing after that.
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
			p.delay, p.quietUntil = 0, time.Time{}
			return
		case <-tick.C:
			p.look()
		}
	}
}

// Delay implements Pacer.
func (p *GuestPacer) Delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.delay, time.Until(p.quietUntil))
}

// Paced is how long the copy has been held back for the guest's sake so far.
func (p *GuestPacer) Paced() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paced
}

// look is one tick.
func (p *GuestPacer) look() {
	mean, known := p.meanSinceLastLook()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delay > 0 || p.quietLeft > 0 {
		p.paced += paceTick
	}
	if p.quietLeft > 0 {
		if p.quietLeft--; p.quietLeft == 0 && known {
			p.baseline = mean
		}
		return
	}
	if p.sinceQuiet += paceTick; p.sinceQuiet >= quietEvery || known && p.baseline == 0 {
		p.standStill()
		return
	}
	if known && mean > max(time.Duration(tolerated*float64(p.baseline)), p.baseline+toleratedSlack) {
		p.delay = min(max(2*p.delay, delayStep), maxDelay)
	} else {
		p.delay = max(p.delay-max(delayStep, p.delay/8), 0)
	}
}

// standStill begins a quiet time. The lock is held.
func (p *GuestPacer) standStill() {
	p.sinceQuiet, p.quietLeft = 0, quietTicks
	p.quietUntil = time.Now().Add(quietTicks * paceTick)
}

// meanSinceLastLook is the guest's mean write latency, if it wrote enough.
func (p *GuestPacer) meanSinceLastLook() (time.Duration, bool) {
	writes, total, ok := p.sample()
	before, totalBefore, measured := p.writes, p.total, p.measured
	p.writes, p.total, p.measured = writes, total, ok
	// Counters that went back are those of a new process of the guest.
	if !ok || !measured || writes-before < minSampleWrites || total < totalBefore {
		return 0, false
	}
	return (total - totalBefore) / time.Duration(writes-before), true
}
