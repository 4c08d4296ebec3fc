// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"testing"

	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab/syscalls"
)

// The deaths and hangs of libvirtd inside its calls.

// libvirtdDies is the blow of a libvirtd that dies and is started again.
func libvirtdDies() *callBlow {
	return &callBlow{program: syscalls.Libvirtd, does: syscalls.Kill, back: func(c *callGuest, t *testing.T) {
		eventually(t, "libvirtd is dead", func() bool { return !c.host.Libvirtd.Running() })
		if err := c.host.Libvirtd.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}}
}

// libvirtdHangs is the blow of a libvirtd that stands still for a while.
func libvirtdHangs() *callBlow {
	return &callBlow{program: syscalls.Libvirtd, does: syscalls.Stop, back: func(c *callGuest, t *testing.T) {
		goesOn(t, c.host.Libvirtd.PID())
	}}
}

// Of the requests for which libvirtd is called.
var libvirtdRequests = map[string]func() *callTrial{
	"move":                            moveInCalls,
	"cancel":                          cancelInCalls,
	"move, stopped":                   func() *callTrial { return moveInCalls().stopped() },
	"cancel, stopped":                 func() *callTrial { return cancelInCalls().stopped() },
	"cancel in a fold":                cancelOfAFoldInCalls,
	"cancel of a mirror":              cancelOfAMirrorInCalls,
	completeAnew:                      completeAnewInCalls,
	"move that keeps the base images": keepBaseInCalls,
	"resize":                          resizeInCalls,
	"attach":                          func() *callTrial { return plugInCalls("running", false) },
	"detach":                          func() *callTrial { return plugInCalls("running", true) },
	"attach, stopped":                 func() *callTrial { return plugInCalls("shut off", false) },
	"detach, stopped":                 func() *callTrial { return plugInCalls("shut off", true) },
	"attach of a root":                func() *callTrial { return rootInCalls(false) },
	"detach of a root":                func() *callTrial { return rootInCalls(true) },
	"start of a guest":                func() *callTrial { return powerInCalls("shut off", "running", "start") },
	"stop of a guest":                 func() *callTrial { return powerInCalls("running", "shut off", "stop") },
	"stop of a guest by force":        func() *callTrial { return powerInCalls("running", "shut off", "stop", "--force") },
	"shelve":                          shelveInCalls,
	"unshelve":                        unshelveInCalls,
	"move with all guests paused":     pauseAllInCalls,
}

// completeAnew is the request in whose way the daemon dies in any case.
const completeAnew = "complete that begins its job anew"

// inWhichTheDaemonLives are the requests of libvirtdRequests for a blow that is about the daemon:
// it strikes it, or asks it how things are.
func inWhichTheDaemonLives() map[string]func() *callTrial {
	some := maps.Clone(libvirtdRequests)
	delete(some, completeAnew)
	return some
}

func TestKillOfLibvirtdAtEverySystemCallOfARequest(t *testing.T) {
	crash.LeftToTestCrash(t)
	forEachCall(t, libvirtdRequests, libvirtdDies)
}

func TestAHangOfLibvirtdAtEverySystemCallOfARequest(t *testing.T) {
	crash.LeftToTestCrash(t)
	forEachCall(t, libvirtdRequests, libvirtdHangs)
}
