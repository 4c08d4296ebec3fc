// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// round are the devices of a round through five kinds of storage, in their order. It begins in a
// file, and ends in one.
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

// goesRound moves the disk of a guest from each of five kinds of storage to the next: first in
// vain, and then by a daemon that is killed in the middle.
func (g *inState) goesRound(t *testing.T) {
	t.Helper()
	goes := func(kind string, to ...string) {
		goTo(t, kind, func(t *testing.T) {
			v := g.start(t, "vda", to...)
			g.middle(t)
			v.copy(t)
			v.cancel(t)
			g.assertAt(t, v.Src.Path)
			v = g.start(t, "vda", append(to, "--bandwidth", "1MiB/s")...)
			v.copyThroughDeath(t)
			v.complete(t)
			g.assertAt(t, v.Dst.Path)
		})
	}
	for _, kind := range ofThisMachine(t, round) {
		goes(kind, "--to-path", storageDevice(t, kind))
	}
	goes("a file", "--to-pool", "b")
	g.end(t)
}

func TestStorageARunningGuestMovesFromEachKind(t *testing.T) {
	storageGuest(t).thatRuns().goesRound(t)
}

func TestStorageAPausedGuestMovesFromEachKind(t *testing.T) {
	storageGuest(t).thatIsPaused(t).goesRound(t)
}

func TestStorageAStoppedGuestMovesFromEachKind(t *testing.T) {
	storageGuest(t).thatIsStopped(t).goesRound(t)
}
