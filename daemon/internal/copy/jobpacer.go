// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"math"
	"time"
)

// Numbers of the pacer of a block job.
const (
	// jobLimitPerByte makes a limit in bytes per second of what a copy might have in flight: QEMU
	// chooses that itself, and its speed is all that can be set. What is in flight is moved in
	// 10 ms, so that the least limit is 6.25 MiB/s.
	jobLimitPerByte = 100
	// A limit is changed if it is to be this many times higher or lower: each change is a call of
	// libvirt.
	jobLimitStep = 1.2
	// convergenceMargin is how much faster a job is than what it needs to end in time.
	convergenceMargin = 1.25
	// stuckAfter is for how long a job may get no nearer to its end until it is not held back any
	// more, and liftFor is for how long that is the first time. It doubles with each time.
	stuckAfter = 3 * time.Second
	liftFor    = 30 * time.Second
	// A job with a bound and no more than briefBytes to do is not held back for briefTime. What it
	// copies is in the guest's own overlay, on which the guest is slower than on a disk with a copy
	// beside it: to be over soon is kinder to it than to measure what it would bear.
	briefBytes = 32 << 20
	briefTime  = 300 * time.Millisecond
	briefTick  = 25 * time.Millisecond
	// dirtiedOver is the time over which it is measured how much a guest adds.
	dirtiedOver = 3 * time.Second
)

// JobProgress is how far a block job of QEMU is, in bytes.
type JobProgress struct {
	Done, Left int64
	// Synchronous: the job's target gets each write of the guest at once, so that none makes
	// more of what is left. Done counts these writes as well.
	Synchronous bool
}

// JobPacer has a block job of QEMU give way to its guest: the control is GuestPacer's, and what
// it sets is the speed of the job. A job that is never looked at again goes on with its last limit,
// which is never below 6.25 MiB/s.
//
// A job has to end however much the guest writes: it gets at least what it needs to end within a
// bound, and one that does not get nearer to its end is not held back.
type JobPacer struct {
	guest *GuestPacer
	ends  time.Time // when it is to be over; zero: there is no bound
	brief time.Time // until when it is not held back

	at     time.Time
	last   JobProgress
	looked bool

	least       int64
	leastAt     time.Time
	dirtied     float64 // by the guest, bytes per second
	liftedUntil time.Time
	lift        time.Duration

	limit    int64
	catching bool
	paced    time.Duration
}

// NewJobPacer returns the pacer of a job that begins, or that was found, now, with the counters of
// the guest's disk; ok is false if these could not be read. The job keeps keepShare of its speed,
// and ends within a bound if that is not 0.
func NewJobPacer(now time.Time, guest GuestLatency, ok bool, keepShare float64, bound time.Duration) *JobPacer {
	p := &JobPacer{guest: NewGuestPacer(nil, keepShare), at: now, least: math.MaxInt64, leastAt: now, lift: liftFor}
	if bound > 0 {
		p.ends = now.Add(bound)
	}
	p.begin(guest, ok)
	return p
}

// begin has the guest's latency measured before the job is held back by it.
func (p *JobPacer) begin(guest GuestLatency, ok bool) {
	p.guest.mu.Lock()
	defer p.guest.mu.Unlock()
	if p.guest.keepShare < 1 {
		p.guest.standStill(quietTicks)
	}
	p.guest.begin(guest, ok)
}

// SetKeepShare changes the share of its speed that the job keeps. With 1 it is not held back.
func (p *JobPacer) SetKeepShare(share float64) { p.guest.SetKeepShare(share) }

// Paced returns for how long the job was held back.
func (p *JobPacer) Paced() time.Duration { return p.paced }

// State returns what the pacer does now, and why.
func (p *JobPacer) State() PaceState {
	if p.at.Before(p.brief) {
		return PaceState{Doing: PaceFree}
	}
	if p.catching {
		return PaceState{Doing: PaceCatchesUp}
	}
	return p.guest.State()
}

// Tick is how long to wait before the next Look: little while a job may be over in a moment, so
// that its end is seen then.
func (p *JobPacer) Tick(now time.Time) time.Duration {
	if now.Before(p.brief) || !p.looked && now.Sub(p.at) < briefTime {
		return briefTick
	}
	return paceTick
}

// Look is called as often as Tick says, and returns the limit that the job is to have from now on,
// in bytes per second; 0 is none.
func (p *JobPacer) Look(now time.Time, guest GuestLatency, ok bool, job JobProgress) int64 {
	elapsed := now.Sub(p.at)
	if elapsed <= 0 {
		return p.limit
	}
	if p.limit > 0 {
		p.paced += elapsed
	}
	if p.looked {
		p.guest.Moved(int64(float64(p.moved(job)) * float64(paceTick) / float64(elapsed)))
		if !job.Synchronous {
			added := float64(max(0, job.Done+job.Left-p.last.Done-p.last.Left)) / elapsed.Seconds()
			p.dirtied += min(1, float64(elapsed)/float64(dirtiedOver)) * (added - p.dirtied)
		}
	}
	if !p.looked && !p.ends.IsZero() && job.Left <= briefBytes {
		p.brief = now.Add(briefTime)
	}
	p.at, p.last, p.looked = now, job, true
	if job.Left < p.least {
		p.least, p.leastAt = job.Left, now
	}
	if now.Before(p.brief) {
		p.begin(guest, ok)
		return 0
	}
	p.guest.lookAt(guest, ok)
	p.set(p.converging(now, p.guest.jobLimit()))
	return p.limit
}

// moved is what the job itself has copied since the last look.
func (p *JobPacer) moved(job JobProgress) int64 {
	if job.Synchronous {
		return max(0, p.last.Left-job.Left)
	}
	return max(0, job.Done-p.last.Done)
}

// converging raises a limit to what the job needs to come to its end.
func (p *JobPacer) converging(now time.Time, limit int64) int64 {
	p.catching = false
	if limit == 0 {
		return 0
	}
	if now.Before(p.liftedUntil) {
		p.catching = true
		return 0
	}
	if now.Sub(p.leastAt) >= stuckAfter {
		p.liftedUntil, p.leastAt, p.lift = now.Add(p.lift), now.Add(p.lift), 2*p.lift
		p.catching = true
		return 0
	}
	if p.ends.IsZero() {
		return limit
	}
	left := p.ends.Sub(now).Seconds()
	if left <= 0 {
		p.catching = true
		return 0
	}
	if need := int64(convergenceMargin * (p.dirtied + float64(p.last.Left)/left)); need > limit {
		p.catching = true
		return need
	}
	return limit
}

// set keeps the last limit where the next one is about the same.
func (p *JobPacer) set(limit int64) {
	if limit == 0 || p.limit == 0 || float64(limit) > jobLimitStep*float64(p.limit) || jobLimitStep*float64(limit) < float64(p.limit) {
		p.limit = limit
	}
}

// jobLimit is the speed of a job that stands for what may be in flight; 0 is no limit.
func (p *GuestPacer) jobLimit() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.keepShare >= 1:
		return 0
	case p.quietLeft > 0: // never 0, or a job whose daemon dies now would stand still for good
		return minInFlight * jobLimitPerByte
	case p.inFlight >= maxInFlight:
		return 0
	}
	return p.inFlight * jobLimitPerByte
}
