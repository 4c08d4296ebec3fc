// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/syscalls"
)

// A libvirtd that stands still for longer than it may take to answer counts as lost: what needs it
// stops or waits, and says so.
func TestAHangOfLibvirtdThatOutlastsTheTimeoutOfACallIsSaidAndLosesNothing(t *testing.T) {
	crash.LeftToTestCrash(t)
	forEachCall(t, inWhichTheDaemonLives(), libvirtdIsLost)
}

// libvirtdIsLost is the blow of a libvirtd that stands still until the daemon has given it up, at
// one point of each kind of call that a request makes.
func libvirtdIsLost() *callBlow {
	return &callBlow{program: syscalls.Libvirtd, does: syscalls.Stop, choose: oneOfEachCall, back: func(c *callGuest, t *testing.T) {
		defer func() {
			if err := unix.Kill(c.host.Libvirtd.PID(), unix.SIGCONT); err != nil {
				t.Error(err)
			}
		}()
		c.saysThatLibvirtIsLost(t)
	}}
}

// givenUp is within which time a libvirtd that does not answer must be given up: the daemon asks it
// something every five seconds, and has its answer within 45.
const givenUp = 75 * time.Second

// saysThatLibvirtIsLost waits until the daemon says so, and claims that every operation that is
// still open says that it waits, or for which other one.
func (c *callGuest) saysThatLibvirtIsLost(t *testing.T) {
	t.Helper()
	expired := time.After(lab.Limit(givenUp))
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !c.host.libvirtIsLost(t) || !c.allWait(t) {
		select {
		case <-tick.C:
		case <-expired:
			t.Fatalf("libvirtd has stood still for %s, and that it is lost is %v; open operations: %+v",
				givenUp, c.host.libvirtIsLost(t), get[[]api.Op](t, c.host, "ops", "op", "list"))
		}
	}
}

func (h *host) libvirtIsLost(t *testing.T) bool {
	t.Helper()
	return slices.ContainsFunc(get[api.Status](t, h, "status", "status").Parts, func(p api.Check) bool {
		return p.Name == "libvirt" && p.Status == "fail"
	})
}

// allWait reports whether every operation that is open says for what it waits.
func (c *callGuest) allWait(t *testing.T) bool {
	t.Helper()
	return !slices.ContainsFunc(get[[]api.Op](t, c.host, "ops", "op", "list"), func(o api.Op) bool {
		return o.WaitingFor == "" && o.Behind == ""
	})
}

// oneOfEachCall chooses by chance one point of each kind of call.
func oneOfEachCall(t *testing.T, points []syscalls.Point) []syscalls.Point {
	t.Helper()
	rnd, seed := crash.Chance(t)
	t.Logf("one point of each call; the same again: SEED=%d", seed)
	of := map[string][]syscalls.Point{}
	var kinds []string
	for _, p := range points {
		if of[p.CallName()] == nil {
			kinds = append(kinds, p.CallName())
		}
		of[p.CallName()] = append(of[p.CallName()], p)
	}
	var chosen []syscalls.Point
	for _, kind := range kinds {
		chosen = append(chosen, of[kind][rnd.IntN(len(of[kind]))])
	}
	return chosen
}
