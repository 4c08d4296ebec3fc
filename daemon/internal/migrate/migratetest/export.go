// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/expect"
)

// Export is the image of the volume of an ExportWorld.
var Export = hv.Image{Type: hv.SourceNetwork, Format: hvtest.Raw, Path: "nbd+unix:///web?socket=/run/nbd.sock"}

// ExportWorld returns a world whose volume is an export of an NBD server, which the kernel knows
// nothing of. What the volume was elsewhere is left there.
func ExportWorld(t *testing.T, state hv.State) *World {
	t.Helper()
	w := NewWorld(t, hv.StateStopped)
	w.Src = Export
	expect.OK(t, w.CreateImage(Export.Path, hvtest.Raw, Size))
	expect.OK(t, w.Copy(SrcPath, Export.Path))
	w.Redefine(t, func(d *hv.Domain) { d.Config[0].Chain = []hv.Image{Export} })
	v := &w.Registry.Vol
	v.Location.Path = Export.Path
	v.Attachments[0].Location = v.Location
	w.bring(t, state)
	return w
}
