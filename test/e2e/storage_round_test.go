// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// round are the devices of a round through five kinds of storage, in their order. It begins in a file, and
// ends in one.
var round = []string{"THIN", "THICK", "MULTIPATH", "NVME"}

// storageHost is a host of the test's own, in a machine with storage.
func storageHost(t *testing.T) *host {
	t.Helper()
	storageDevice(t, walked[0])
	h := startHost(t)
	h.virsh(t, "capabilities") // libvirtd asks QEMU for them at its first call, which takes long here
	return h
}

// storageGuest is a guest that runs on a storageHost. Its disk is in a file.
func storageGuest(t *testing.T) *guest {
	t.Helper()
	h := storageHost(t)
	return h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
}

// goesRound moves the disk of a guest from each of five kinds of storage to the next: first in vain, and then by a daemon that is
// killed in the middle. Middle is what the guest does between start and copy of a move that is cancelled. After each of
// the moves the guest is in the state, and atRest claims that nothing was lost.
func (g *guest) goesRound(t *testing.T, state string, middle, atRest func(*testing.T)) {
	t.Helper()
	ended := func(t *testing.T, path string) {
		t.Helper()
		if at := g.volume(t, "vda").Location.Path; at != path {
			t.Errorf("the volume is at %s, want %s", at, path)
		}
		if now := g.state(t); now != state {
			t.Fatalf("the guest was %s, and is %s after the move", state, now)
		}
		atRest(t)
	}
	goes := func(name string, to ...string) {
		if !t.Run("to "+name, func(t *testing.T) {
			v := g.start(t, "vda", to...)
			middle(t)
			v.copy(t)
			v.cancel(t)
			ended(t, v.Src.Path)
			v = g.start(t, "vda", append(to, "--bandwidth", "1MiB/s")...)
			v.copyThroughDeath(t)
			v.complete(t)
			ended(t, v.Dst.Path)
		}) {
			t.FailNow() // the guest is not where the next move begins
		}
	}
	for _, kind := range round {
		goes(kind, "--to-path", storageDevice(t, kind))
	}
	goes("a file", "--to-pool", "b")
}

func TestStorageARunningGuestMovesFromEachKind(t *testing.T) {
	g := storageGuest(t)
	g.goesRound(t, "running", g.writes, g.assertSettledAndGoOn)
	g.assertSettled(t)
}

// Between two moves it runs, and writes to where it has come.
func TestStorageAPausedGuestMovesFromEachKind(t *testing.T) {
	g := storageGuest(t)
	g.pause(t)
	g.goesRound(t, "paused", nothingElse, func(t *testing.T) {
		t.Helper()
		g.assertAtRest(t)
		g.resume(t)
		g.assertSettledAndGoOn(t)
		g.pause(t)
	})
	g.resume(t)
	g.assertSettled(t)
}

// It runs once on the overlay over each kind, whose image qemu-img brings that back to.
func TestStorageAStoppedGuestMovesFromEachKind(t *testing.T) {
	g := storageGuest(t)
	g.powerOff(t)
	g.goesRound(t, "shut off", func(t *testing.T) {
		t.Helper()
		g.boot(t)
		g.powerOff(t)
	}, g.assertSettled)
	g.boot(t) // where it has come in the end
	g.assertSettled(t)
}
