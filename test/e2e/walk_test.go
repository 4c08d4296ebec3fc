// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// Storage over a network as source and destination of each other kind, with a guest in each state
// and without one. Each volume begins as a linked clone.

// place is a kind of storage that a volume comes to.
type place struct {
	kind string               // in the words of kindOf
	next func() (to []string) // the flags of a move there, to another place of the kind than the last one
}

// inPool are files of a format.
func inPool(format api.Format) place {
	return place{string(format) + " file", func() []string { return []string{"--to-pool", "b", "--to-format", string(format)} }}
}

// atPaths are places to which the volume comes in turn, also to what it has left before.
func atPaths(kind string, paths ...string) place {
	n := 0
	return place{kind, func() []string {
		n++
		return []string{"--to-path", paths[n%len(paths)], "--to-format", string(api.FormatRaw), "--yes"}
	}}
}

// localPlaces are those that are not over a network.
func (h *host) localPlaces(t *testing.T) []place {
	t.Helper()
	return []place{inPool(api.FormatRaw), inPool(api.FormatQcow2), atPaths("loop device", h.device(t, h.poolA, volumeBytes).Path)}
}

// exportPlaces are two exports at Unix sockets, and two over TCP.
func (h *host) exportPlaces(t *testing.T) []place {
	t.Helper()
	first, second := h.servedOverTCP(t).Export, h.servedOverTCP(t).Export
	h.listServers(t, first, second)
	return []place{
		atPaths("NBD export", h.served(t).Export.URI(), h.served(t).Export.URI()),
		atPaths("NBD export over TCP", first.URI(), second.URI()),
	}
}

// toAndFro is a way from each of the hubs to another place of its kind, and to each other kind and
// back.
func toAndFro(hubs, others []place) (way []place) {
	for i, hub := range hubs {
		way = append(way, hub, hub)
		for _, other := range slices.Concat(hubs[i+1:], others) {
			way = append(way, other, hub)
		}
	}
	return way
}

// wayOfExports is a host, and a way from and to exports.
func wayOfExports(t *testing.T) (h *host, way []place) {
	t.Helper()
	leftToTestE2E(t)
	h = startHost(t)
	return h, toAndFro(h.exportPlaces(t), h.localPlaces(t))
}

// wayOfImages is a host, and a way from and to RBD images.
func wayOfImages(t *testing.T) (h *host, way []place) {
	t.Helper()
	requireCeph(t)
	c := sharedCluster(t)
	h = cephHost(t, c)
	images := atPaths("RBD image", h.emptyImage(t, c, "rbd"), h.emptyImage(t, c, "fast"))
	return h, toAndFro([]place{images}, slices.Concat(h.exportPlaces(t), h.localPlaces(t)))
}

// cloneOfAFile is a volume that is a linked clone, whose base images stay as they are.
func (h *host) cloneOfAFile(t *testing.T) lab.Disk {
	t.Helper()
	clone, bases := h.cloneIn(t, h.poolA, h.diskIn(t, h.poolB, api.FormatRaw))
	t.Cleanup(unchanged(t, bases))
	return clone
}

// runningClone is a guest that runs on a linked clone.
func (h *host) runningClone(t *testing.T) *guest {
	t.Helper()
	return h.runningGuest(t, h.cloneOfAFile(t))
}

// comesTo claims that a volume has come to the kind of storage to which it went.
func (h *host) comesTo(t *testing.T, to place, m api.Migration, method string) {
	t.Helper()
	if kind := h.kindOf(t, m.Dst); kind != to.kind || m.Method != method {
		t.Errorf("the volume went to %s by %s, want %s by %s", kind, m.Method, to.kind, method)
	}
}

// goes moves the disk along a way.
func (g *inState) goes(t *testing.T, way []place) {
	t.Helper()
	for _, to := range way {
		goTo(t, to.kind, func(t *testing.T) {
			v := g.start(t, "vda", to.next()...)
			g.middle(t)
			v.copy(t)
			v.complete(t)
			g.host.comesTo(t, to, v.Migration, "overlay")
			g.assertAt(t, v.Dst.Path)
		})
	}
	g.end(t)
}

// unattachedGoes moves a volume that no instance has along a way.
func (h *host) unattachedGoes(t *testing.T, way []place) {
	t.Helper()
	d := h.cloneOfAFile(t)
	h.ctl(t, "volume", "adopt", "data", "--path", d.Path, "--format", d.Format)
	for _, to := range way {
		goTo(t, to.kind, func(t *testing.T) {
			h.comesTo(t, to, h.migrateUnattached(t, d, to.next()...), methodOffline)
		})
	}
}

func TestARunningGuestMovesFromExportsToEachOtherKindAndBack(t *testing.T) {
	h, way := wayOfExports(t)
	h.runningClone(t).thatRuns().goes(t, way)
}

func TestAPausedGuestMovesFromExportsToEachOtherKindAndBack(t *testing.T) {
	h, way := wayOfExports(t)
	h.runningClone(t).thatIsPaused(t).goes(t, way)
}

func TestAStoppedGuestMovesFromExportsToEachOtherKindAndBack(t *testing.T) {
	h, way := wayOfExports(t)
	h.runningClone(t).thatIsStopped(t).goes(t, way)
}

func TestAVolumeOfNoInstanceMovesFromExportsToEachOtherKindAndBack(t *testing.T) {
	h, way := wayOfExports(t)
	h.unattachedGoes(t, way)
}

func TestCephARunningGuestMovesFromImagesToEachOtherKindAndBack(t *testing.T) {
	h, way := wayOfImages(t)
	h.runningClone(t).thatRuns().goes(t, way)
}

func TestCephAPausedGuestMovesFromImagesToEachOtherKindAndBack(t *testing.T) {
	h, way := wayOfImages(t)
	h.runningClone(t).thatIsPaused(t).goes(t, way)
}

func TestCephAStoppedGuestMovesFromImagesToEachOtherKindAndBack(t *testing.T) {
	h, way := wayOfImages(t)
	h.runningClone(t).thatIsStopped(t).goes(t, way)
}

func TestCephAVolumeOfNoInstanceMovesFromImagesToEachOtherKindAndBack(t *testing.T) {
	h, way := wayOfImages(t)
	h.unattachedGoes(t, way)
}
