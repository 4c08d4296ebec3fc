// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

func TestBandwidthChangedWhileRunningTakesEffectAtOnce(t *testing.T) {
	src, dst := raw(t, "src", 32*miB, [2]int64{0, 32 * miB}), raw(t, "dst", 32*miB)
	limit := copy.NewLimiter(1) // a month
	var phases atomic.Int64
	go func() { // lifted only when all workers wait
		for phases.Load() == 0 {
			select {
			case <-t.Context().Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
		<-time.After(200 * time.Millisecond)
		limit.SetBytesPerSecond(64 * miB)
	}()
	started := time.Now()
	mustCopy(t, copy.Spec{Src: src, Dst: dst, Limit: limit, Progress: func(copy.Progress) { phases.Add(1) }})
	if took := time.Since(started); took < 500*time.Millisecond || took > 10*time.Second {
		t.Errorf("32 MiB at 64 MiB/s took %v", took)
	}
	assertEqual(t, src, dst)
}

func TestBandwidthOfQemuImgIsCappedAndCanBeChanged(t *testing.T) {
	src, dst := raw(t, "src", 96*miB, [2]int64{0, 96 * miB}), qcow2(t, "dst", 96*miB)
	limit := copy.NewLimiter(64 * miB)
	started := time.Now()
	lifted := time.AfterFunc(700*time.Millisecond, func() { limit.SetBytesPerSecond(0) })
	defer lifted.Stop()
	mustCopy(t, copy.Spec{Src: src, Dst: dst, Limit: limit})
	if took := time.Since(started); took < 600*time.Millisecond {
		t.Errorf("96 MiB at 64 MiB/s took %v", took)
	} else {
		t.Logf("took %v", took)
	}
	limit.SetBytesPerSecond(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
	if _, err := copy.Copy(ctx, copy.Spec{Src: dst, Dst: raw(t, "back", 96*miB), Limit: limit}); err == nil {
		t.Error("a copy at one byte per second ended")
	}
}

func TestRawAndQcow2BothWays(t *testing.T) {
	src := raw(t, "src", 24*miB, [2]int64{0, 3 * miB}, [2]int64{20*miB + 512, 512})
	first, second, back := qcow2(t, "first", 24*miB), qcow2(t, "second", 24*miB), raw(t, "back", 24*miB, [2]int64{0, 24 * miB})
	for _, step := range []copy.Spec{{Src: src, Dst: first}, {Src: first, Dst: second, DstIsZero: true}, {Src: second, Dst: back}} {
		step.Verify = true
		var last copy.Progress
		step.Progress = func(p copy.Progress) { last = p }
		if result := mustCopy(t, step); !result.Verified {
			t.Errorf("result %+v", result)
		}
		if last.Phase != copy.PhaseVerify || last.BytesDone != 24*miB {
			t.Errorf("last progress %+v", last)
		}
	}
	assertEqual(t, src, back)
	if n, err := qemuimg.AllocatedBytes(second.Path); err != nil || n > 8*miB {
		t.Errorf("%d bytes allocated, %v", n, err)
	}
}

// fakeGuest writes a hundred times a second. Its writes take idle, and the more
// the less the copy is delayed.
type fakeGuest struct {
	pacer *copy.GuestPacer
	idle  time.Duration
	hurt  func(delay time.Duration) time.Duration

	felt   atomic.Int64 // the delay since the last sample
	writes int64
	total  time.Duration
	last   time.Time
}

func (g *fakeGuest) sample() (int64, time.Duration, bool) {
	n := int64(time.Since(g.last) / (10 * time.Millisecond))
	g.last = time.Now()
	g.writes += n
	g.total += time.Duration(n) * (g.idle + g.hurt(time.Duration(g.felt.Load())))
	return g.writes, g.total, true
}

// quietFelt is what is left of the quiet time when the guest looks: 500 ms after
// 350 ms.
const quietFelt = 150 * time.Millisecond

// run lets the pacer watch the guest for a while.
func (g *fakeGuest) run(ctx context.Context, t *testing.T, watch func(*copy.GuestPacer)) {
	ctx, cancel := context.WithCancel(ctx)
	g.last = time.Now()
	g.pacer = copy.NewGuestPacer(g.sample)
	go g.pacer.Run(ctx)
	go func() {
		next := time.After(100 * time.Millisecond)
		for {
			select {
			case <-ctx.Done():
				return
			case <-next:
				g.felt.Store(int64(g.pacer.Delay()))
				next = time.After(250 * time.Millisecond)
			}
		}
	}()
	watch(g.pacer)
	cancel()
	synctest.Wait()
	if d := g.pacer.Delay(); d != 0 {
		t.Errorf("delay %v after the end", d)
	}
}

func TestPacerGivesWayToAGuestThatSuffersAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suffering atomic.Bool
		suffering.Store(true)
		g := &fakeGuest{idle: 2 * time.Millisecond, hurt: func(delay time.Duration) time.Duration {
			if !suffering.Load() || delay >= 80*time.Millisecond {
				return 0
			}
			return 20 * time.Millisecond
		}}
		g.run(t.Context(), t, func(p *copy.GuestPacer) {
			<-time.After(5 * time.Second)
			if d := p.Delay(); d < 60*time.Millisecond || d > 200*time.Millisecond {
				t.Errorf("delay %v while the guest suffers", d)
			}
			if p.Paced() < 4*time.Second {
				t.Errorf("paced %v", p.Paced())
			}
			suffering.Store(false)
			<-time.After(10 * time.Second)
			if d := p.Delay(); d != 0 {
				t.Errorf("delay %v though the guest is well", d)
			}
		})
	})
}

func TestPacerLeavesAGuestAloneThatIsAlwaysSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGuest{idle: 50 * time.Millisecond, hurt: func(time.Duration) time.Duration { return 10 * time.Millisecond }}
		g.run(t.Context(), t, func(p *copy.GuestPacer) {
			<-time.After(20 * time.Second)
			if p.Delay() != 0 || p.Paced() > time.Second {
				t.Errorf("delay %v, paced %v", p.Delay(), p.Paced())
			}
		})
	})
}

func TestPacerNeverStopsTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGuest{idle: time.Millisecond, hurt: func(delay time.Duration) time.Duration {
			if delay == quietFelt {
				return 0
			}
			return time.Second
		}}
		g.run(t.Context(), t, func(p *copy.GuestPacer) {
			<-time.After(25 * time.Second)
			if d := p.Delay(); d != 250*time.Millisecond {
				t.Errorf("delay %v", d)
			}
		})
	})
}

func TestAPacerWhoseSampleHangsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := copy.NewGuestPacer(func() (int64, time.Duration, bool) {
			<-ctx.Done()
			return math.MaxInt64, 0, false
		})
		go p.Run(ctx)
		<-time.After(time.Second)
		if d := p.Delay(); d > 0 {
			t.Errorf("delay %v", d)
		}
		cancel()
		synctest.Wait()
	})
}
