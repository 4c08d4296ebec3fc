// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"math"
	"time"
)

const (
	// jobLimitPerByte converts bytes in flight to a speed limit in bytes per second: QEMU chooses
	// a job's bytes in flight, and only its speed can be set. The bytes in flight move in 10 ms,
	// so the lowest limit is 6.25 MiB/s.
	jobLimitPerByte = 100
	// A new limit differs by at least this factor: each change is a libvirt call.
	jobLimitStep = 1.2
	// convergenceMargin is the factor over the speed that the job needs to end in time.
	convergenceMargin = 1.25
	// After stuckAfter without progress the job gets no limit, for liftFor the first time, and
	// twice as long each next time.
	stuckAfter = 3 * time.Second
	liftFor    = 30 * time.Second
	// A job with a time bound and at most briefBytes left has no limit for briefTime. Until it
	// ends, the guest uses its slower overlay; a short job disturbs the guest less than measuring
	// a limit.
	briefBytes  = 32 << 20
	briefTime   = 300 * time.Millisecond
	briefTick   = 25 * time.Millisecond
	dirtiedOver = 3 * time.Second
)

// JobProgress is the progress of a QEMU block job, in bytes.
type JobProgress struct {
	Done, Left int64
	// Synchronous: each write of the guest goes to the job's target at once, so it does not
	// increase Left. Done counts these writes too.
	Synchronous bool
}

// JobPacer sets GuestPacer's limit as the speed of a QEMU block job. Without further calls of Look
// the job keeps its last limit, which is never below 6.25 MiB/s.
//
// A job must end however much the guest writes. So it gets at least the speed that it needs to end
// in time, and a job without progress gets no limit.
type JobPacer struct {
	guest *GuestPacer
	ends  time.Time // its deadline; zero: there is no bound
	brief time.Time // end of the time without a limit

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

// NewJobPacer returns the pacer of a job that starts, or was found, at now. guest has the counters
// of the guest's disk; ok is false if they are unknown. The job keeps the share keepShare of its
// speed, and ends within the time bound; 0 means no bound.
func NewJobPacer(now time.Time, guest GuestLatency, ok bool, keepShare float64, bound time.Duration) *JobPacer {
	p := &JobPacer{guest: NewGuestPacer(nil, keepShare), at: now, least: math.MaxInt64, leastAt: now, lift: liftFor}
	if bound > 0 {
		p.ends = now.Add(bound)
	}
	p.begin(guest, ok)
	return p
}

func (p *JobPacer) begin(guest GuestLatency, ok bool) {
	p.guest.mu.Lock()
	defer p.guest.mu.Unlock()
	if p.guest.keepShare < 1 {
		p.guest.standStill(quietTicks)
	}
	p.guest.begin(guest, ok)
}

// SetKeepShare changes the kept share of the job's speed; 1 means no limit.
func (p *JobPacer) SetKeepShare(share float64) { p.guest.SetKeepShare(share) }

// Paced returns how long the job had a limit.
func (p *JobPacer) Paced() time.Duration { return p.paced }

// State returns the pacer's present state and its reason.
func (p *JobPacer) State() PaceState {
	if p.at.Before(p.brief) {
		return PaceState{Doing: PaceFree}
	}
	if p.catching {
		return PaceState{Doing: PaceCatchesUp}
	}
	return p.guest.State()
}

// Tick returns the time until the next Look. It is short while the job may end soon.
func (p *JobPacer) Tick(now time.Time) time.Duration {
	if now.Before(p.brief) || !p.looked && now.Sub(p.at) < briefTime {
		return briefTick
	}
	return paceTick
}

// Look returns the job's new limit in bytes per second; 0 means none. Call it at Tick's intervals.
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

func (p *JobPacer) moved(job JobProgress) int64 {
	if job.Synchronous {
		return max(0, p.last.Left-job.Left)
	}
	return max(0, job.Done-p.last.Done)
}

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

func (p *JobPacer) set(limit int64) {
	if limit == 0 || p.limit == 0 || float64(limit) > jobLimitStep*float64(p.limit) || jobLimitStep*float64(limit) < float64(p.limit) {
		p.limit = limit
	}
}

func (p *GuestPacer) jobLimit() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.keepShare >= 1:
		return 0
	case p.quietLeft > 0: // the lowest limit instead of a stop: the daemon may die now
		return minInFlight * jobLimitPerByte
	case p.inFlight >= maxInFlight:
		return 0
	}
	return p.inFlight * jobLimitPerByte
}
