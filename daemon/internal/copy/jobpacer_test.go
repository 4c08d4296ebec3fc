// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
)

// jobPlant is a disk with a guest that writes and a block job that copies as fast as its limit
// permits. The guest's latency rises with the load of the disk.
type jobPlant struct {
	idle           time.Duration // latency of a write without a job
	bytesPerSecond float64       // bandwidth of the disk
	dirties        float64       // bytes per second that the guest adds to the job
	synchronous    bool
	silent         bool // the guest is idle

	pacer  *copy.JobPacer
	now    time.Time
	limit  int64
	guest  copy.Latency
	job    copy.JobProgress
	limits []int64 // of each look
}

func newJobPlant(left int64) *jobPlant {
	return &jobPlant{
		idle: time.Millisecond, bytesPerSecond: 400 << 20, synchronous: true,
		now: time.Unix(1, 0), job: copy.JobProgress{Left: left},
	}
}

// speed returns the job's speed, in bytes per second.
func (p *jobPlant) speed() float64 {
	if p.limit == 0 {
		return p.bytesPerSecond
	}
	return min(float64(p.limit), p.bytesPerSecond)
}

func (p *jobPlant) latency() time.Duration {
	busy := min(0.95, p.speed()/p.bytesPerSecond)
	return time.Duration(float64(p.idle) / (1 - busy))
}

// run runs the plant until the job has nothing left, for most at the longest, and returns the
// duration.
func (p *jobPlant) run(keepShare float64, bound, most time.Duration) time.Duration {
	if p.pacer == nil {
		p.pacer = copy.NewJobPacer(p.now, p.counters(), true, keepShare, bound)
	}
	began := p.now
	for p.job.Left > 0 && p.now.Sub(began) < most {
		look := p.pacer.Tick(p.now)
		p.now = p.now.Add(look)
		done := min(int64(p.speed()*look.Seconds()), p.job.Left)
		p.job.Done, p.job.Left = p.job.Done+done, p.job.Left-done
		if !p.synchronous && p.job.Left > 0 {
			p.job.Left += int64(p.dirties * look.Seconds())
		}
		p.job.Synchronous = p.synchronous
		if took := p.latency(); !p.silent {
			p.guest.Requests += int64(look / took)
			p.guest.Total += look
		}
		p.limit = p.pacer.Look(p.now, p.counters(), true, p.job)
		p.limits = append(p.limits, p.limit)
	}
	return p.now.Sub(began)
}

func (p *jobPlant) counters() copy.GuestLatency { return copy.GuestLatency{Writes: p.guest} }

// held returns the lowest and the highest limit of the last looks, and how many of them had none.
// It omits pauses of the job and measurements, which last 0.4 and 0.2 s.
func (p *jobPlant) held(looks int) (least, most int64, free int) {
	least = 1 << 60
	for _, limit := range p.limits[len(p.limits)-looks:] {
		switch limit {
		case 0:
			free++
		case leastJobLimit:
		default:
			least, most = min(least, limit), max(most, limit)
		}
	}
	return least, most, free
}

const (
	leastJobLimit = 6400 << 10
	tib           = 1 << 40
)

func TestTheLimitOfAJobIsFoundAndStays(t *testing.T) {
	p := newJobPlant(tib)
	p.run(0, 0, 20*time.Second)
	p.limits = nil
	p.run(0, 0, 10*time.Second)
	least, most, free := p.held(100)
	// A third of the speed causes 1.5 times the latency, which is tolerated.
	if float64(least) < p.bytesPerSecond/6 || float64(most) > p.bytesPerSecond/2 || most > 2*least || free > 0 {
		t.Errorf("the limit was from %d to %d, and none in %d of 100 looks", least, most, free)
	}
	if p.pacer.Paced() < 20*time.Second {
		t.Errorf("held back for %v of 30 s", p.pacer.Paced())
	}
	if s := p.pacer.State(); s.Doing != copy.PaceGivesWay {
		t.Errorf("it says %q", s)
	}
}

func TestAJobBesideAGuestThatDoesNothingHasNoLimit(t *testing.T) {
	p := newJobPlant(tib)
	p.silent = true
	p.run(0.5, 0, 5*time.Second)
	for i, limit := range p.limits {
		if limit != 0 {
			t.Fatalf("look %d set a limit of %d", i, limit)
		}
	}
}

func TestAJobKeepsItsShareOfTheSpeed(t *testing.T) {
	p := newJobPlant(tib)
	p.run(0.5, 0, 60*time.Second)
	if share := float64(p.job.Done) / 60 / p.bytesPerSecond; share < 0.42 || share > 0.7 {
		t.Errorf("the job had %.2f of its speed", share)
	}
}

func TestAJobIsNeverStoppedWhateverItsGuestSuffers(t *testing.T) {
	p := newJobPlant(tib)
	p.bytesPerSecond = 7 << 20
	p.run(0, 0, 60*time.Second)
	for i, limit := range p.limits {
		if limit != 0 && limit < leastJobLimit {
			t.Fatalf("look %d set a limit of %d", i, limit)
		}
	}
	if p.job.Done < 60*(6<<20)*9/10 {
		t.Errorf("%d bytes were copied in a minute", p.job.Done)
	}
}

func TestAJobGivesWayWithinTwoSecondsAndComesBack(t *testing.T) {
	p := newJobPlant(tib)
	p.silent = true
	p.run(0, 0, 5*time.Second)
	p.silent = false
	p.run(0, 0, 10*time.Second) // the usual latency is learned after relearnAfter
	if p.limit == 0 || float64(p.limit) > p.bytesPerSecond/2 {
		t.Errorf("the limit is %d", p.limit)
	}
	p.bytesPerSecond /= 8 // another user of the disk
	p.run(0, 0, 2*time.Second)
	if p.limit == 0 || float64(p.limit) > p.bytesPerSecond/2 {
		t.Errorf("2 s after the disk became slow the limit is %d", p.limit)
	}
	p.silent = true
	p.run(0, 0, 3*time.Second)
	if p.limit != 0 {
		t.Errorf("the limit is %d though the guest does nothing", p.limit)
	}
}

// Without pacing the commit would end: its remaining bytes shrink by the disk's bandwidth less the
// guest's writes.
func TestACommitEndsThoughItsGuestWritesFasterThanTheLimitItWouldGet(t *testing.T) {
	for name, share := range map[string]float64{"full": 0, "gentle": 0.5} {
		t.Run(name, func(t *testing.T) {
			p := newJobPlant(1 << 30)
			p.synchronous, p.dirties = false, 300<<20
			took := p.run(share, 10*time.Minute, 15*time.Minute)
			if p.job.Left > 0 {
				t.Fatalf("after %v there are %d bytes left", took, p.job.Left)
			}
			if took > 10*time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestACommitThatGetsNowhereHasNoLimit(t *testing.T) {
	p := newJobPlant(1 << 30)
	p.synchronous, p.dirties = false, 500<<20
	p.run(0, 10*time.Minute, 9*time.Second)
	if p.limit != 0 {
		t.Errorf("the limit is %d", p.limit)
	}
	if s := p.pacer.State(); s.Doing != copy.PaceCatchesUp {
		t.Errorf("it says %q", s)
	}
}

func TestAFoldIsOverWithinItsBoundHoweverMuchItsGuestSuffers(t *testing.T) {
	p := newJobPlant(100 << 30)
	p.idle = 100 * time.Microsecond
	if took := p.run(0, 10*time.Minute, time.Hour); took > 10*time.Minute {
		t.Errorf("it took %v", took)
	}
}

func TestAFoldOfLittleIsOverBeforeItIsHeldBack(t *testing.T) {
	p := newJobPlant(32 << 20)
	if took := p.run(0, 10*time.Minute, time.Hour); took > 100*time.Millisecond {
		t.Errorf("the end of 32 MiB at 400 MiB/s was seen after %v", took)
	}
	for what, p := range map[string]*jobPlant{"a mirror": newJobPlant(32 << 20), "a fold of more": newJobPlant(256 << 20)} {
		bound := 10 * time.Minute
		if what == "a mirror" {
			bound = 0
		}
		if p.run(0, bound, time.Millisecond); p.limit == 0 {
			t.Errorf("%s is not held back at its first look", what)
		}
	}
}

func TestAFoldOfLittleOnASlowDiskIsHeldBackAfterAMoment(t *testing.T) {
	p := newJobPlant(32 << 20)
	p.bytesPerSecond = 20 << 20
	p.run(0, 10*time.Minute, time.Second)
	least, most, free := p.held(6)
	if free > 0 {
		t.Errorf("it had no limit in %d of the last 6 looks, and from %d to %d in the others", free, least, most)
	}
	if s := p.pacer.State(); s.Doing == copy.PaceFree {
		t.Errorf("it says %+v", s)
	}
}

func TestAJobWithPaceOffHasNoLimit(t *testing.T) {
	p := newJobPlant(tib)
	p.run(1, 0, 5*time.Second)
	if _, _, free := p.held(50); free != 50 || p.pacer.State().Doing == copy.PaceMeasures {
		t.Errorf("%d of 50 looks had no limit, and it says %q", free, p.pacer.State())
	}
	p.pacer.SetKeepShare(0)
	p.run(0, 0, 20*time.Second)
	if p.limit == 0 {
		t.Error("it has no limit with another share")
	}
}
