// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

// The clock of the machine is set an hour forward or two back each time that the daemon passes a
// point, so that the daemon, the registry, libvirtd and QEMU see it jump in each step.
func TestStorageAClockThatJumpsInEveryStepChangesNothing(t *testing.T) {
	if !onStorage() {
		t.Skip("SKIPPED: it sets the clock of the machine; make test-storage runs it in a machine of its own")
	}
	for _, c := range asks {
		t.Run(c.name, func(t *testing.T) {
			g := storageGuest(t)
			x := c.trial(t, g)
			x.writer = nil // gaps are by the host's clock
			x.underJumps(t, func(ps points) points { return ps.of(c.kind) })
			g.assertSettled(t)
		})
	}
	t.Run("attach and detach", func(t *testing.T) {
		g := storageGuest(t)
		v := g.host.adoptVolume(t, g.host.diskIn(t, g.host.poolA, api.FormatRaw))
		forEachPlug(t, func(t *testing.T, detaches bool) {
			g.plugTrial(v, "running", "running", detaches).underJumps(t, func(ps points) points { return ps.ofPlug(detaches) })
		})
		g.assertSettled(t)
	})
}

// underJumps makes the request once while the clock jumps at each of its points.
func (x *trial) underJumps(t *testing.T, its func(points) points) {
	t.Helper()
	var jumps atomic.Int64
	stop := func() {}
	defer func() { stop() }()
	x.once(t, "", blow{
		arm:    func(t *testing.T, _ point) { x.watchPoints(t) },
		ready:  func(t *testing.T, _ point) { stop = x.host.clockJumps(t, &jumps) },
		strike: func(*testing.T, context.Context, point) {},
	})
	steps := len(its(x.passed(t)).where(point.atStart))
	t.Logf("the clock jumped %d times in %d steps", jumps.Load(), steps)
	if jumps.Load() < int64(steps) {
		t.Errorf("the clock jumped %d times in %d steps, want once in each", jumps.Load(), steps)
	}
}

// clockJumps sets the clock each time that the daemon passes a point, and counts that, until what
// is returned is called: then it is right again.
func (h *host) clockJumps(t *testing.T, jumps *atomic.Int64) (stop func()) {
	t.Helper()
	begin := time.Now()
	set := func(wrong time.Duration) {
		now := begin.Add(time.Since(begin) + wrong) // by the clock that does not jump
		at := unix.NsecToTimespec(now.UnixNano())
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &at); err != nil {
			t.Error(err)
		}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer set(0)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		seen, wrong := 0, -time.Hour
		for {
			select {
			case <-tick.C:
			case <-end:
				return
			}
			if n := len(h.passed(t)); n > seen {
				seen, wrong = n, -wrong
				set(wrong)
				jumps.Add(1)
			}
		}
	}()
	return func() { close(end); <-ended }
}
