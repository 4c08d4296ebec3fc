// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"io"
	"os"
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// firstBlock is what the image that a move leaves begins with, and something else of that size.
func (v *move) firstBlock(t *testing.T) (is, other []byte) {
	t.Helper()
	f, err := os.Open(fileOf(v.Src.Path))
	if err != nil {
		t.Fatal(err)
	}
	is = make([]byte, 4<<10)
	if _, err := io.ReadFull(f, is); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	other = slices.Clone(is)
	for i := range other {
		other[i] = ^other[i]
	}
	return is, other
}

// strangerWrites is another program that writes to the beginning of an image.
func strangerWrites(t *testing.T, image lab.RBDImage, data []byte) {
	t.Helper()
	if err := image.Write(t.Context(), image.Spec, 0, data); err != nil {
		t.Fatal(err)
	}
}

// removeSnapshot is a person who says that the image that a move leaves is to be taken as it is.
func (v *move) removeSnapshot(t *testing.T, image lab.RBDImage) {
	t.Helper()
	name := "volferry-" + v.ID
	if all, err := image.Snapshots(t.Context(), image.Spec); err != nil || !slices.Equal(all, []string{name}) {
		t.Errorf("the image has the snapshots %v (%v), want %s", all, err, name)
	}
	if _, err := image.RBD(t.Context(), "snap", "rm", "--no-progress", image.Spec+"@"+name); err != nil {
		t.Fatal(err)
	}
}

// The guest reads what is written: the very bytes that are there, which nobody can know beforehand.
func TestCephAnImageThatIsWrittenUnderARunningGuestIsNeitherCopiedNorFoldedInto(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	d := h.imageIn(t, c)
	g := h.runningGuest(t, d)
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	is, _ := v.firstBlock(t)
	strangerWrites(t, *d.RBD, is)
	mustContain(t, h.fails(t, api.ExitOpFailed, api.CodeChainChanged, v.copyArgs()...).Message, "rbd diff --from-snap volferry-"+v.ID)
	h.fails(t, api.ExitOpFailed, api.CodeChainChanged, v.cancelArgs()...)
	g.writes(t)
	v.removeSnapshot(t, *d.RBD)
	v.copy(t)
	g.writes(t)
	v.finish(t)
	g.assertSettledAndGoOn(t)
	g.powerOff(t)
	g.assertSettled(t)
}

func TestCephAnImageThatIsWrittenInItsCopyIsNotSwitchedFrom(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	d := h.imageIn(t, c)
	g := h.stoppedGuest(t, d)
	v := g.start(t, "vda", "--to-pool", "b", "--bandwidth", "4MiB/s")
	is, other := v.firstBlock(t)
	v.copyPartly(t)
	strangerWrites(t, *d.RBD, other)
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	if why := v.untilFailed(t, api.MigrationStarted); why.Code != api.CodeChainChanged {
		t.Errorf("the copy ended with %v, want %s", why, api.CodeChainChanged)
	}
	strangerWrites(t, *d.RBD, is)
	v.removeSnapshot(t, *d.RBD)
	v.cancel(t)
	g.boot(t)
	g.powerOff(t)
	g.assertSettled(t)
}

func TestCephAnImageThatIsWrittenBehindItsCopyIsNotSwitchedFrom(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	d := h.imageIn(t, c)
	g := h.stoppedGuest(t, d)
	v := g.start(t, "vda", "--to-path", h.emptyImage(t, c, "fast"))
	is, other := v.firstBlock(t)
	v.copy(t)
	strangerWrites(t, *d.RBD, other)
	h.fails(t, api.ExitOpFailed, api.CodeChainChanged, v.completeArgs()...)
	h.fails(t, api.ExitOpFailed, api.CodeChainChanged, v.cancelArgs()...)
	strangerWrites(t, *d.RBD, is)
	v.removeSnapshot(t, *d.RBD)
	v.finish(t)
	g.boot(t)
	g.powerOff(t)
	g.assertSettled(t)
}

// A program may write what is there already: a complete compares the image with its copy.
func TestCephAnImageThatWasTouchedBehindItsCopyIsSwitchedFrom(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	d := h.imageIn(t, c)
	g := h.runningGuest(t, d)
	v := g.start(t, "vda", "--to-path", h.emptyImage(t, c, "fast"))
	g.writes(t)
	v.copy(t)
	is, _ := v.firstBlock(t)
	strangerWrites(t, *d.RBD, is)
	v.finish(t)
	g.assertSettledAndGoOn(t)
	g.powerOff(t)
	g.assertSettled(t)
}
