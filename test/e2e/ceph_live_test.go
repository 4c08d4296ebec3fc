// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// RBD images as source and destination of the disk of a guest that runs and writes.

func TestCephAVolumeGoesFromAndToImagesUnderARunningGuest(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	g := h.runningGuest(t, h.imageIn(t, c))
	for n, to := range []string{h.emptyImage(t, c, "fast"), h.poolB + "/live.raw", h.emptyImage(t, c, "rbd"), h.served(t).Export.URI(), h.emptyImage(t, c, "fast")} {
		var flags []string
		if n == 0 {
			flags = []string{"--bandwidth", "4MiB/s"}
		}
		v := g.start(t, "vda", append(flags, "--to-path", to)...)
		g.writes(t)
		if n == 0 {
			v.copyThroughDeath(t)
		} else {
			v.copy(t)
		}
		g.writes(t)
		v.finish(t)
		if v.Method != "overlay" || v.Dst.Path != to {
			t.Errorf("the volume went to %s by %s", v.Dst.Path, v.Method)
		}
		g.assertSettledAndGoOn(t)
		if n%2 == 1 {
			continue
		}
		v = g.start(t, "vda", "--to-path", h.emptyImage(t, c, "rbd"))
		g.writes(t)
		v.copy(t)
		v.cancel(t)
		g.assertSettledAndGoOn(t)
	}
	g.powerOff(t)
	g.assertSettled(t)
}

// The overlay is folded without QEMU then, into an image in each direction.
func TestCephAGuestThatIsStoppedWhileItsVolumeMovesBetweenImagesIsFolded(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	g := h.runningGuest(t, h.imageIn(t, c))
	for _, stop := range []func(*testing.T){g.powerOff, g.crashes} { // whose client is one for half a minute more
		for _, end := range []func(*move){
			func(v *move) { v.cancel(t) },
			func(v *move) { v.copy(t); v.finish(t) },
		} {
			v := g.start(t, "vda", "--to-path", h.emptyImage(t, c, "fast"))
			g.writes(t)
			stop(t)
			end(v)
			g.boot(t)
			g.assertSettledAndGoOn(t)
		}
	}
	g.powerOff(t)
	g.assertSettled(t)
}

// The guest's own client is there as well, and Ceph does not say whose a client is.
func TestCephAnImageThatAnotherClientHasBesideTheGuestIsNotMoved(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	d := h.imageIn(t, c)
	g := h.runningGuest(t, d)
	name := g.volumeName("vda")
	release := c.Hold(t, d.RBD.Spec)
	mustContain(t, h.refuses(t, api.CodeVolumeInUse, "volume", "migrate", name, "--to-pool", "b").Message, "rbd status")
	release()
	eventually(t, "the other client is gone", func() bool {
		n, err := c.Watchers(t.Context(), d.RBD.Spec)
		return err == nil && n == 1
	})
	v := g.start(t, "vda", "--to-pool", "b")
	release = c.Hold(t, d.RBD.Spec)
	h.fails(t, api.ExitOpFailed, api.CodeVolumeInUse, v.copyArgs()...)
	h.fails(t, api.ExitOpFailed, api.CodeVolumeInUse, v.cancelArgs()...)
	g.writes(t)
	release()
	v.cancel(t)
	g.assertSettledAndGoOn(t)
	g.powerOff(t)
	g.assertSettled(t)
}

func TestCephAVolumeAtAnImageIsGivenToAndTakenFromARunningGuest(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	p := g.attach(t, h.adoptVolume(t, h.imageIn(t, c)))
	p.writes(t)
	m := get[api.Migration](t, h, "migration", "volume", "migrate", p.name, "--to-path", h.emptyImage(t, c, "fast"))
	if m.State != api.MigrationCompleted || m.Method != "overlay" {
		t.Fatalf("ended as %s by %s", m.State, m.Method)
	}
	g.noteMove(t, m)
	p.writes(t)
	p.quiesce(t)
	p.detach(t)
	p.assertHolds(t)
	g.powerOff(t)
	g.assertSettled(t)
}

// Ceph waits for its OSDs for ever, and so do the guest's reads of what is in src alone.
func TestCephAClusterThatDiesInTheMoveOfARunningGuestCostsNoWrite(t *testing.T) {
	requireCeph(t)
	c := ownCluster(t)
	h := cephHost(t, c)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	v := g.start(t, "vda", "--to-path", h.emptyImage(t, c, "fast"), "--bandwidth", "4MiB/s")
	v.copyPartly(t)
	die := func() {
		if err := errors.Join(c.KillOSD(), c.KillMon()); err != nil {
			t.Fatal(err)
		}
	}
	live := func() {
		if err := errors.Join(c.StartMon(), c.StartOSD()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.RBD(t.Context(), "ls", "fast"); err != nil { // which waits for them
			t.Fatal(err)
		}
	}
	die()
	h.fails(t, api.ExitOpFailed, api.CodeIOError, "migration", "watch", v.ID)
	g.writes(t)
	h.mustFail(t, v.completeArgs()...)
	g.writes(t)
	live()
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.copy(t)
	die()
	h.mustFail(t, v.completeArgs()...)
	g.writes(t)
	live()
	v.complete(t)
	g.assertSettledAndGoOn(t)
	g.powerOff(t)
	g.assertSettled(t)
}

// imagesGuest is a guest whose disk goes to and fro between two images.
func imagesGuest(t *testing.T) *exports {
	t.Helper()
	c := sharedCluster(t)
	h := cephHost(t, c)
	src := h.imageIn(t, c)
	return &exports{h.runningGuest(t, src), src.Path, h.emptyImage(t, c, "fast")}
}

func TestCephKillAtStepsOfAMoveBetweenImagesUnderARunningGuest(t *testing.T) {
	requireCeph(t)
	imagesGuest(t).diesInMoves(t)
}

func TestCephKillAtStepsOfACancelOfAMoveBetweenImages(t *testing.T) {
	requireCeph(t)
	imagesGuest(t).diesInCancels(t)
}
