// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"context"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// A target's volumes, in a directory that exists on every machine.
const (
	SrcUnit = "/dev/pts/vf-old"
	DstUnit = "/dev/pts/vf-new"
)

// ArrayWorld returns a world with a volume that moves between two pools of a connector. src is
// deleted at the end.
func ArrayWorld(t *testing.T, state hv.State) *World {
	t.Helper()
	return with(NewWorld, func(t *testing.T, w *World) {
		t.Helper()
		for _, name := range []string{"old-array", "new-array"} {
			w.AddPool(hv.PoolInfo{Name: name, Type: hv.ConnectorPool, Path: "/dev/" + name, Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40, Extends: true})
		}
		w.Connectors = &hosttest.Connectors{Fake: w.Fake, Images: w.Images}
		w.To = api.MigrationTarget{ToPool: "new-array", DeleteSource: true}
		src := api.Location{Pool: "old-array", Name: "vol", Path: "/dev/old-array/vol", Format: api.FormatRaw, SizeBytes: Size}
		expect.OK(t, w.CreateImage(src.Path, hvtest.Raw, Size))
		w.beginOn(t, src)
	})(t, state)
}

// TargetWorld returns a world with a volume that moves between two volumes of a target. The target
// copies between them by itself.
func TargetWorld(t *testing.T, state hv.State) *World {
	t.Helper()
	return with(NewWorld, func(t *testing.T, w *World) {
		t.Helper()
		w.AddPool(hv.PoolInfo{Name: "target", Type: hv.ConnectorPool, Path: "/dev/pts", Active: true})
		w.Connectors = &hosttest.Connectors{Fake: w.Fake, Images: w.Images, Copies: true}
		w.To = api.MigrationTarget{ToPath: DstUnit}
		for _, unit := range []string{SrcUnit, DstUnit} {
			expect.OK(t, w.AddTarget(unit, Size))
		}
		expect.OK(t, w.ConnectDevice(context.Background(), SrcUnit))
		w.beginOn(t, api.Location{Path: SrcUnit, Format: api.FormatRaw, SizeBytes: Size})
	})(t, state)
}

func (w *World) beginOn(t *testing.T, l api.Location) {
	t.Helper()
	w.Src = hv.Image{Type: hv.SourceBlock, Format: hvtest.Raw, Path: l.Path}
	expect.OK(t, w.Copy(SrcPath, l.Path))
	w.Redefine(t, func(d *hv.Domain) { d.Config[0].Chain = []hv.Image{w.Src} })
	w.Registry.Vol.Location, w.Registry.Vol.Attachments[0].Location = l, l
}
