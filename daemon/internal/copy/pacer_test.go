// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
)

// plant is a disk with a guest that writes one block after the other, and a copy that always has
// the allowed bytes in flight. A request waits for the bytes in flight before it.
type plant struct {
	idle           time.Duration // latency of a write without a copy
	bytesPerSecond int64         // bandwidth of the disk
	noise          float64       // random relative increase of a write's latency
	thinks         time.Duration // between two writes
	perRequest     time.Duration // time of a request of the copy independent of its size
	contention     float64       // relative increase of a write's latency during any copy
	keepShare      float64

	mu     sync.Mutex
	pacer  *copy.GuestPacer
	random *rand.Rand
	writes copy.Latency
	copied int64
}

func newPlant(idle time.Duration, bytesPerSecond int64) *plant {
	return &plant{idle: idle, bytesPerSecond: bytesPerSecond, keepShare: 0.5, random: rand.New(rand.NewPCG(1, 2))}
}

// latency returns the present latency of a write. Hold mu.
func (p *plant) latency() time.Duration {
	inFlight, rest := p.pacer.Allow()
	if rest > time.Millisecond {
		return p.idle // the copy is paused
	}
	// A request rests and is then served: the guest meets it for that part of the time.
	served := p.served(inFlight)
	met := float64(served) / float64(served+p.perRequest+rest)
	return p.idle + time.Duration(p.contention*float64(p.idle)) + time.Duration(met*float64(served))
}

// served returns how long the disk works for the bytes in flight.
func (p *plant) served(inFlight int64) time.Duration {
	return time.Duration(float64(inFlight) / float64(p.bytesPerSecond) * float64(time.Second))
}

// copies lets the copy run for a while. Hold mu.
func (p *plant) copies(elapsed time.Duration) {
	inFlight, rest := p.pacer.Allow()
	if rest > time.Millisecond {
		return
	}
	took := p.served(inFlight) + p.perRequest + rest
	n := int64(float64(inFlight) * float64(elapsed) / float64(took))
	p.copied += n
	p.pacer.Moved(n)
}

func (p *plant) sample() (copy.GuestLatency, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return copy.GuestLatency{Writes: p.writes}, true
}

// write lets the guest write until ctx ends, two milliseconds at a time.
func (p *plant) write(ctx context.Context) {
	const step = 2 * time.Millisecond
	var spent time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(step):
		}
		p.mu.Lock()
		p.copies(step)
		took := time.Duration(float64(p.latency()) * (1 + p.noise*p.random.Float64()))
		spent += step
		n := spent / (took + p.thinks)
		spent -= n * (took + p.thinks)
		p.writes.Requests += int64(n)
		p.writes.Total += n * took
		p.mu.Unlock()
	}
}

// run lets a pacer watch the plant for as long as watch takes.
func (p *plant) run(t *testing.T, watch func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p.pacer = copy.NewGuestPacer(p.sample, p.keepShare)
		go p.write(ctx)
		go p.pacer.Run(ctx)
		watch()
		cancel()
		synctest.Wait()
		if inFlight, rest := p.pacer.Allow(); inFlight != 16*miB || rest != 0 {
			t.Errorf("%d bytes in flight after a rest of %v when nobody watches the guest", inFlight, rest)
		}
	})
}

// change changes the plant.
func (p *plant) change(to func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to()
}

// means looks at the plant a hundred times, every 100 ms. It returns the mean latency, and the
// mean, lowest and highest bytes in flight. It omits pauses of the copy.
func (p *plant) means() (latency time.Duration, mean, least, most int64) {
	least = 1 << 40
	looks := int64(0)
	for range 100 {
		<-time.After(100 * time.Millisecond)
		inFlight, rest := p.pacer.Allow()
		if rest > time.Millisecond {
			continue
		}
		p.mu.Lock()
		latency += p.latency()
		p.mu.Unlock()
		looks++
		mean, least, most = mean+inFlight, min(least, inFlight), max(most, inFlight)
	}
	return latency / time.Duration(looks), mean / looks, least, most
}

// The pacer tolerates 1.5 times the idle latency, and at least 0.3 ms more. So on this disk half a
// millisecond, 512 KiB, may be in flight.
func TestThePacerFindsHowMuchTheGuestBearsAndStaysThere(t *testing.T) {
	for name, noise := range map[string]float64{"a disk without noise": 0, "a noisy disk": 0.3} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(time.Millisecond, 1<<30)
			p.noise = noise
			p.run(t, func() {
				<-time.After(5 * time.Second)
				latency, mean, least, most := p.means()
				if latency > 2*p.idle {
					t.Errorf("a write of the guest takes %v, %v without a copy", latency, p.idle)
				}
				if mean < 256<<10 || mean > 768<<10 || most > 4*least {
					t.Errorf("%d bytes are in flight, from %d to %d", mean, least, most)
				}
			})
		})
	}
}

func TestThePacerTakesAllThatTheGuestDoesNotMind(t *testing.T) {
	for name, p := range map[string]*plant{
		"a disk that is fast":           newPlant(time.Millisecond, 256<<30),
		"a guest that is always slow":   newPlant(50*time.Millisecond, 1<<30),
		"a guest that does not write":   {keepShare: 0.5, thinks: 1000 * time.Hour, bytesPerSecond: 1 << 30, random: rand.New(rand.NewPCG(1, 2))},
		"a guest that writes every 2 s": {idle: time.Millisecond, keepShare: 0.5, thinks: 2 * time.Second, bytesPerSecond: 1 << 30, random: rand.New(rand.NewPCG(1, 2))},
	} {
		t.Run(name, func(t *testing.T) {
			p.run(t, func() {
				<-time.After(8 * time.Second)
				if inFlight, rest := p.pacer.Allow(); inFlight < 12*miB || rest != 0 {
					t.Errorf("%d bytes are in flight, after a rest of %v", inFlight, rest)
				}
			})
		})
	}
}

func TestThePacerGivesWayWithinASecondAndComesBack(t *testing.T) {
	p := newPlant(time.Millisecond, 256<<30)
	p.run(t, func() {
		<-time.After(8 * time.Second)
		p.change(func() { p.bytesPerSecond = 1 << 30 })
		<-time.After(time.Second)
		if inFlight, _ := p.pacer.Allow(); inFlight > miB {
			t.Errorf("%d bytes are in flight a second after the disk became slow", inFlight)
		}
		p.change(func() { p.bytesPerSecond = 256 << 30 })
		<-time.After(6 * time.Second)
		if inFlight, _ := p.pacer.Allow(); inFlight < 12*miB {
			t.Errorf("%d bytes are in flight though the disk is fast again", inFlight)
		}
		if p.pacer.Paced() < time.Second {
			t.Errorf("paced for %v", p.pacer.Paced())
		}
	})
}

// share returns the copy's speed in the next ten seconds, relative to its unlimited speed.
func (p *plant) share() float64 {
	p.mu.Lock()
	before := p.copied
	p.mu.Unlock()
	<-time.After(10 * time.Second)
	p.mu.Lock()
	defer p.mu.Unlock()
	full := 16 * miB / (p.served(16*miB) + p.perRequest).Seconds()
	return float64(p.copied-before) / 10 / full
}

// The guest waits for a processor that the copy needs too, and not for the disk: its writes take
// twice as long, with any bytes in flight.
func TestThePacerKeepsItsShareOfTheSpeedWhereGivingWayDoesNotHelpEnough(t *testing.T) {
	for keep, want := range map[float64][2]float64{0.5: {0.45, 0.7}, 0: {0.01, 0.12}} {
		for name, noise := range map[string]float64{"without noise": 0, "with noise": 0.3} {
			t.Run(fmt.Sprintf("%v of it, %s", keep, name), func(t *testing.T) {
				p := newPlant(time.Millisecond, 1<<30)
				p.contention, p.perRequest, p.keepShare, p.noise = 1, 500*time.Microsecond, keep, noise
				p.run(t, func() {
					<-time.After(4 * time.Second)
					_, _, least, most := p.means()
					if keep > 0 && most > 3*least && most < 16*miB {
						t.Errorf("from %d to %d bytes are in flight", least, most)
					}
					if share := p.share(); share < want[0] || share > want[1] {
						t.Errorf("the copy has %.2f of its speed, want %.2f to %.2f", share, want[0], want[1])
					}
					if s := p.pacer.State(); keep > 0 && s.Doing != copy.PaceKeepsShare && s.Doing != copy.PaceMeasures {
						t.Errorf("it says %q", s)
					}
				})
			})
		}
	}
}

// states looks at the pacer for a while, every 100 ms, and counts its activities.
func (p *plant) states(d time.Duration) map[copy.PaceDoing]int {
	seen := map[copy.PaceDoing]int{}
	for range d / (100 * time.Millisecond) {
		<-time.After(100 * time.Millisecond)
		seen[p.pacer.State().Doing]++
	}
	return seen
}

// newCrowdedPlant has a guest with writes that take three times as long during any copy, since it
// has less CPU time then, plus the disk's effect.
func newCrowdedPlant(bytesPerSecond int64, noise float64) *plant {
	p := newPlant(time.Millisecond, bytesPerSecond)
	p.contention, p.perRequest, p.noise = 2, 500*time.Microsecond, noise
	return p
}

// letGo waits until the pacer has found that a limit does not help.
func (p *plant) letGo(t *testing.T) {
	t.Helper()
	<-time.After(4 * time.Second)
	if s := p.pacer.State(); s.Doing != copy.PaceDoesNotHelp {
		t.Fatalf("it says %q", s)
	}
}

// No request of this guest waits for the copy's requests: the guest only has less CPU time.
func TestThePacerLetsACopyGoWhereGivingWayDoesNotHelp(t *testing.T) {
	for name, noise := range map[string]float64{"without noise": 0, "with noise": 0.3} {
		t.Run(name, func(t *testing.T) {
			p := newCrowdedPlant(64<<30, noise)
			p.run(t, func() {
				<-time.After(4 * time.Second)
				if share := p.share(); share < 0.9 {
					t.Errorf("the copy has %.2f of its speed", share)
				}
				if s := p.pacer.State(); s.Doing != copy.PaceDoesNotHelp || s.Requests != "writes" || s.Mean < 2*time.Millisecond {
					t.Errorf("it says %q", s)
				}
				held := p.states(2 * time.Minute)
				if held[copy.PaceKeepsShare] == 0 || held[copy.PaceKeepsShare]+held[copy.PaceGivesWay] > 100 {
					t.Errorf("in two minutes it held the copy back in %v of 1200 looks, want a second or two each half minute, to try it anew", held)
				}
			})
		})
	}
}

// Between these disks a guest loses about as much with and without a limit, and the pacer must try
// both to decide.
func TestThePacerDoesNotWaverWhereGivingWayHelpsALittle(t *testing.T) {
	for bytesPerSecond := int64(512 << 20); bytesPerSecond <= 8<<30; bytesPerSecond += bytesPerSecond / 4 {
		t.Run(fmt.Sprintf("%d MiB/s", bytesPerSecond>>20), func(t *testing.T) {
			p := newCrowdedPlant(bytesPerSecond, 0.3)
			p.run(t, func() {
				<-time.After(4 * time.Second)
				letGo, before := 0, copy.PaceDoing("")
				for range 5 * 60 * 10 {
					<-time.After(100 * time.Millisecond)
					now := p.pacer.State().Doing
					if now == copy.PaceDoesNotHelp && before != now && before != copy.PaceMeasures {
						letGo++
					}
					before = now
				}
				if letGo > 12 {
					t.Errorf("in five minutes it let the copy go %d times, want about once each half minute at the most", letGo)
				}
			})
		})
	}
}

// An operator who wants the copy to have any low speed overrules the pacer.
func TestACopyThatWasLetGoGivesWayWithoutAShare(t *testing.T) {
	p := newCrowdedPlant(64<<30, 0)
	p.run(t, func() {
		p.letGo(t)
		p.pacer.SetKeepShare(0)
		<-time.After(4 * time.Second)
		if inFlight, _ := p.pacer.Allow(); inFlight > miB {
			t.Errorf("%d bytes are in flight", inFlight)
		}
	})
}

func TestThePacerGivesWayAgainOnceThatHelps(t *testing.T) {
	p := newCrowdedPlant(64<<30, 0)
	p.run(t, func() {
		p.letGo(t)
		p.change(func() { p.bytesPerSecond = 1 << 30 })
		<-time.After(2 * time.Second)
		if inFlight, _ := p.pacer.Allow(); inFlight > 4*miB {
			t.Errorf("%d bytes are in flight two seconds after the disk became slow", inFlight)
		}
		if seen := p.states(time.Minute); seen[copy.PaceDoesNotHelp] > 0 {
			t.Errorf("with the disk slow: %v", seen)
		}
	})
}

func TestACopyBesideAGuestThatDoesNothingIsFastAtOnce(t *testing.T) {
	p := newPlant(time.Millisecond, 1<<30)
	p.thinks = 1000 * time.Hour
	p.run(t, func() {
		<-time.After(150 * time.Millisecond)
		if inFlight, rest := p.pacer.Allow(); inFlight != 16*miB || rest > 0 {
			t.Errorf("%d bytes are in flight, after a rest of %v", inFlight, rest)
		}
	})
}

// A caller that follows the operator's setting may set the same value again.
func TestTheSameShareOnceMoreDoesNotHoldTheCopyUp(t *testing.T) {
	p := newPlant(time.Millisecond, 1<<30)
	p.thinks = 1000 * time.Hour
	p.keepShare = 0.25
	p.run(t, func() {
		<-time.After(time.Second)
		p.pacer.SetKeepShare(0.25)
		if _, rest := p.pacer.Allow(); rest > 0 {
			t.Errorf("the copy rests for %v", rest)
		}
		p.pacer.SetKeepShare(0.5)
		if _, rest := p.pacer.Allow(); rest == 0 {
			t.Error("with another share nothing is measured anew")
		}
	})
}

func TestThePacerNeverStarvesTheCopy(t *testing.T) {
	p := newPlant(time.Millisecond, 1<<20) // any bytes in flight are too many
	p.keepShare = 0
	p.run(t, func() {
		<-time.After(5 * time.Second)
		stood := 0
		for range 1000 {
			<-time.After(20 * time.Millisecond)
			switch inFlight, rest := p.pacer.Allow(); {
			case rest > time.Millisecond:
				stood++
			case inFlight < 64<<10 || rest > time.Millisecond:
				t.Fatalf("%d bytes are in flight, after a rest of %v", inFlight, rest)
			}
		}
		if stood > 150 {
			t.Errorf("the copy stood still for %d of 1000 looks", stood)
		}
	})
}

func TestAGuestThatBecomesSlowByItselfIsNotHeldAgainstTheCopyForLong(t *testing.T) {
	p := newPlant(time.Millisecond, 64<<30)
	p.run(t, func() {
		<-time.After(10 * time.Second)
		p.change(func() { p.idle = 20 * time.Millisecond })
		<-time.After(25 * time.Second)
		if inFlight, _ := p.pacer.Allow(); inFlight < 12*miB {
			t.Errorf("%d bytes are in flight", inFlight)
		}
	})
}

func TestAPacerWhoseSampleHangsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := copy.NewGuestPacer(func() (copy.GuestLatency, bool) {
			<-ctx.Done()
			return copy.GuestLatency{}, false
		}, 0.5)
		go p.Run(ctx)
		<-time.After(time.Second)
		if _, rest := p.Allow(); rest > 0 {
			t.Errorf("a request rests %v", rest)
		}
		cancel()
		synctest.Wait()
	})
}
