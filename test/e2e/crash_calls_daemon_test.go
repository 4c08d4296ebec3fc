// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab/syscalls"
)

// The deaths and hangs of volferryd at its own system calls: on its journal, on images, guards and
// whatever else it writes, and where it has just asked libvirt or the registry for a change.

// volferrydDies is the blow of a daemon that dies and is started again, and volferrydHangs that of
// one that stands still for a while.
func volferrydDies() *callBlow {
	return &callBlow{program: syscalls.Volferryd, does: syscalls.Kill, image: anywhere, back: func(c *callGuest, t *testing.T) {
		if err := c.host.DaemonDied(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.host.StartDaemon(t.Context(), c.env); err != nil {
			t.Fatal(err)
		}
	}}
}

func volferrydHangs() *callBlow {
	return &callBlow{program: syscalls.Volferryd, does: syscalls.Stop, image: anywhere, back: func(c *callGuest, t *testing.T) {
		goesOn(t, c.host.DaemonPID())
	}}
}

// volferrydRequests are all requests: those for which libvirtd is called, and those for which it is
// hardly.
func volferrydRequests() map[string]func() *callTrial {
	all := inWhichTheDaemonLives()
	all["complete a fold"] = func() *callTrial { return foldInCalls((*guest).runThenComplete) }
	all["cancel by a fold"] = func() *callTrial { return foldInCalls((*guest).runThenCancel) }
	all["reformat, stopped"] = func() *callTrial { return reformatInCalls(api.FormatQcow2).stopped() }
	return all
}

func TestKillOfVolferrydAtEverySystemCallOfARequest(t *testing.T) {
	leftToTestE2E(t)
	requests := volferrydRequests()
	if !crash.Every() {
		requests = map[string]func() *callTrial{"move": requests["move"], "complete a fold": requests["complete a fold"]}
	}
	forEachCall(t, requests, volferrydDies)
}

func TestAHangOfVolferrydAtEverySystemCallOfARequest(t *testing.T) {
	crash.LeftToTestCrash(t)
	forEachCall(t, volferrydRequests(), volferrydHangs)
}
