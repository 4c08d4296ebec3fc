// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// Export is the volume's image in an ExportWorld.
var Export = hv.Image{Type: hv.SourceNetwork, Format: hvtest.Raw, Path: "nbd+unix:///web?socket=/run/nbd.sock"}

// OtherExport is an export of a TCP server.
var OtherExport = hv.Image{Type: hv.SourceNetwork, Format: hvtest.Raw, Path: "nbd://nbd.example:10809/other"}

// RBD is the volume's image in an RBDWorld.
var RBD = hv.Image{Type: hv.SourceNetwork, Format: hvtest.Raw, Path: "rbd://5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/web"}

// OtherRBD is another RBD image.
var OtherRBD = hv.Image{Type: hv.SourceNetwork, Format: hvtest.Raw, Path: "rbd://5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11/fast/other"}

// ExportWorld returns a world with an NBD server's export as the volume, which the kernel does not
// know.
func ExportWorld(t *testing.T, state hv.State) *World {
	t.Helper()
	return networkWorld(t, state, Export)
}

// RBDWorld is ExportWorld with an RBD image.
func RBDWorld(t *testing.T, state hv.State) *World {
	t.Helper()
	return networkWorld(t, state, RBD)
}

// ToAddress makes worlds with a volume that moves to an image at an address.
func ToAddress(kind func(*testing.T, hv.State) *World, dst hv.Image) func(*testing.T, hv.State) *World {
	return with(kind, func(t *testing.T, w *World) {
		t.Helper()
		expect.OK(t, w.CreateImage(dst.Path, hvtest.Raw, Size))
		w.To = api.MigrationTarget{ToPath: dst.Path}
	})
}

// NewRBD is an RBD image that does not exist.
var NewRBD = hv.Image{Type: hv.SourceNetwork, Format: hvtest.Raw, Path: "rbd://5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11/fast/new"}

// ToNewImage makes worlds with a volume that moves to an RBD image that the move makes.
func ToNewImage(kind func(*testing.T, hv.State) *World) func(*testing.T, hv.State) *World {
	return with(kind, func(t *testing.T, w *World) {
		t.Helper()
		w.To, w.Makes = api.MigrationTarget{ToPath: NewRBD.Path}, true
	})
}

// LiveKinds makes worlds, by the places of a running guest's volume before and after a move.
var LiveKinds = map[string]func(*testing.T, hv.State) *World{
	"from a file to a file":                NewWorld,
	"from an RBD image to a file":          RBDWorld,
	"from a file to an export":             ToAddress(NewWorld, OtherExport),
	"from an export to an image":           ToAddress(ExportWorld, OtherRBD),
	"from a file to an image that is made": ToNewImage(NewWorld),
	"from a container to another":          LUKSWorld,
	"from an image on a device to another": DeviceWorld,
	"from a linked clone to another":       KeepBaseWorld,
	"from a part of an export to an image": toPartOf(partWorld(Export), OtherRBD),
}

// OnLiveKinds runs a test on each of LiveKinds.
func OnLiveKinds(t *testing.T, test func(t *testing.T, world func(*testing.T, hv.State) *World)) {
	t.Helper()
	for kind, world := range LiveKinds {
		t.Run(kind, func(t *testing.T) { test(t, world) })
	}
}

func partWorld(src hv.Image) func(*testing.T, hv.State) *World {
	return func(t *testing.T, state hv.State) *World {
		t.Helper()
		src.SliceBytes = Size
		return networkWorld(t, state, src)
	}
}

func toPartOf(kind func(*testing.T, hv.State) *World, dst hv.Image) func(*testing.T, hv.State) *World {
	return with(kind, func(t *testing.T, w *World) {
		t.Helper()
		w.larger.create(t, w.Fake, dst.Path)
		w.To = api.MigrationTarget{ToPath: dst.Path}
	})
}

func networkWorld(t *testing.T, state hv.State, src hv.Image) *World {
	t.Helper()
	w := NewWorld(t, hv.StateStopped)
	w.Src = src
	if src.SliceBytes != 0 {
		w.larger.create(t, w.Fake, src.Path)
	} else {
		expect.OK(t, w.CreateImage(src.Path, hvtest.Raw, Size))
	}
	expect.OK(t, w.CopyImage(hv.Image{Path: SrcPath}, src))
	w.Redefine(t, func(d *hv.Domain) { d.Config[0].Chain = []hv.Image{src} })
	v := &w.Registry.Vol
	v.Location.Path, v.Location.ImageBytes = src.Path, w.larger.bytes(src.Path)
	v.Attachments[0].Location = v.Location
	w.bring(t, state)
	return w
}
