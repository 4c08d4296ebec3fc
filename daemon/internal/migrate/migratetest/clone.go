// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// BasePath is the base image of CloneWorld's volume.
const BasePath = "/old/base.raw"

// Qcow2World returns a world with a qcow2 image as the volume.
func Qcow2World(t *testing.T, state hv.State) *World {
	t.Helper()
	w := NewWorld(t, hv.StateStopped)
	w.Src.Format = hvtest.Qcow2
	expect.OK(t, w.Remove(SrcPath))
	expect.OK(t, w.CreateImage(SrcPath, hvtest.Qcow2, Size))
	for b := range int64(Blocks / 2) {
		expect.OK(t, w.WriteBlock(SrcPath, b*2, uint64(b)+1))
	}
	w.Redefine(t, func(d *hv.Domain) { d.Config[0].Chain[0].Format = hvtest.Qcow2 })
	v := &w.Registry.Vol
	v.Location.Format = api.FormatQcow2
	v.Attachments[0].Location = v.Location
	w.bring(t, state)
	return w
}

// CloneWorld returns a world with a linked clone as the volume, over an image with the volume's
// data. Only the header names that image.
func CloneWorld(t *testing.T, state hv.State) *World {
	t.Helper()
	w := NewWorld(t, hv.StateStopped)
	base := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: BasePath}
	expect.OK(t, w.CreateImage(BasePath, hvtest.Raw, Size))
	expect.OK(t, w.Copy(SrcPath, BasePath))
	expect.OK(t, w.Remove(SrcPath))
	expect.OK(t, w.CreateOverlay(SrcPath, base, Size))
	w.Redefine(t, func(d *hv.Domain) { d.Config[0].Chain[0].Format, d.Config[0].Terminated = hvtest.Qcow2, false })
	v := &w.Registry.Vol
	v.Location.Format, v.Location.Backing = api.FormatQcow2, api.NewBacking([]api.BaseImage{{Path: BasePath, Format: api.FormatRaw}})
	v.Attachments[0].Location = v.Location
	w.bring(t, state)
	return w
}

// KeepBaseWorld returns a world with a linked clone that has own data and moves to a linked clone
// over the same base image.
func KeepBaseWorld(t *testing.T, state hv.State) *World {
	t.Helper()
	w := CloneWorld(t, hv.StateStopped)
	w.Src.Format, w.To.KeepBase = hvtest.Qcow2, true
	w.Bases = []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: BasePath}}
	w.Redefine(t, func(d *hv.Domain) {
		d.Config[0].Chain, d.Config[0].Terminated = append([]hv.Image{w.Src}, w.Bases...), true
	})
	for block, value := range map[int64]uint64{0: 1, 4: 3} { // the guest's data there is in the clone
		expect.OK(t, w.WriteBlock(SrcPath, block, value))
		expect.OK(t, w.WriteBlock(BasePath, block, 77))
	}
	w.IsClone(SrcPath)
	w.IsClone(DstPath)
	w.Sync(BasePath)
	info, err := w.Fake.Info(BasePath)
	expect.OK(t, err)
	w.basesWritten = info.Written
	w.bring(t, state)
	return w
}
