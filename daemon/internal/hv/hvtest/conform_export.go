// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var exportTests = map[string]func(*testing.T, *bench){
	"AnExportIsFrozenCommittedToAndLeftForAFile": func(t *testing.T, b *bench) {
		testExport(t, b, b.Export(t, diskBytes), b.image(t, "dst.raw", Raw))
	},
	"AnExportIsLeftForAnotherOne": func(t *testing.T, b *bench) {
		testExport(t, b, b.Export(t, diskBytes), b.Export(t, diskBytes))
	},
	"TheBeginningOfAnExportIsFrozenCommittedToAndLeftForAnother": func(t *testing.T, b *bench) {
		src, dst := b.Export(t, 2*diskBytes), b.Export(t, diskBytes+1<<20)
		src.SliceBytes, dst.SliceBytes = diskBytes, diskBytes
		testExport(t, b, src, dst)
	},
	"AJobIntoAnExportEndsWithTheConnectionToIt": testEndConnections,
	"AFileIsLeftForAnExport": func(t *testing.T, b *bench) {
		testExport(t, b, b.image(t, "src.raw", Raw), b.Export(t, diskBytes))
	},
}

// testExport freezes a disk below an overlay, commits, freezes again, and moves the disk to dst.
// src or dst is an NBD export.
func testExport(t *testing.T, b *bench, src, dst hv.Image) {
	t.Helper()
	b.WriteImage(t, src, 0, 1)
	id := b.define(t, nil, src)
	if _, err := b.hv.OpenFiles(t.Context(), id, src.Path); !errors.Is(err, hv.ErrNotActive) {
		t.Errorf("what a stopped domain has open: %v", err)
	}
	b.Start(t, id)
	g := &guest{bench: b, id: id, src: src}
	g.wantLive(t, src)
	g.wantConfig(t, src)
	g.wantOpen(t, src, "w")
	g.wantOpen(t, dst, "")

	overlay := g.overlay(t, src)
	ok(t, g.hv.SetConfigChain(t.Context(), id, "vda", []hv.Image{overlay, src}))
	ok(t, g.putOverlay(t.Context(), id, "vda", overlay))
	g.wantLive(t, overlay, src)
	ok(t, g.hv.SetConfigChain(t.Context(), id, "vda", []hv.Image{overlay, src}))
	g.wantConfig(t, overlay, src)
	g.wantOpen(t, src, "r")
	g.wantOpen(t, overlay, "w")
	g.GuestWrite(t, id, "vda", 1, 2)
	g.CheckImage(t, src, 1, 0)

	ok(t, g.hv.CommitActive(t.Context(), id, "vda", 0))
	g.awaitReady(t, hv.JobActiveCommit, src)
	g.wantOpen(t, src, "w")
	ok(t, g.hv.Pivot(t.Context(), id, "vda"))
	g.wantLive(t, src)
	ok(t, g.hv.SetConfigChain(t.Context(), id, "vda", []hv.Image{src}))
	g.wantConfig(t, src)
	g.wantOpen(t, src, "w")
	g.wantOpen(t, overlay, "")
	g.CheckGuest(t, id, "vda", 1, 2)

	b.WriteImage(t, dst, 0, 1)
	b.WriteImage(t, dst, 1, 2)
	g.snapshot(t, 3)
	g.wantOpen(t, src, "r")
	ok(t, g.hv.BlockCopy(t.Context(), id, "vda", dst, hv.BlockCopyOptions{Shallow: true, Synchronous: true}))
	g.awaitReady(t, hv.JobCopy, dst)
	g.wantOpen(t, src, "r")
	g.wantOpen(t, dst, "w")
	ok(t, g.hv.Pivot(t.Context(), id, "vda"))
	g.wantLive(t, dst)
	g.wantConfig(t, dst)
	g.wantOpen(t, src, "")
	g.wantOpen(t, dst, "w")
	for block, value := range map[int64]byte{0: 1, 1: 2, 3: 2} {
		g.CheckGuest(t, id, "vda", block, value)
	}
	g.CheckImage(t, src, 3, 0)
}

func (g *guest) wantOpen(t *testing.T, img hv.Image, want string) {
	t.Helper()
	if how := g.openFor(t, img); how != want {
		t.Errorf("%s is open as %q, want %q", img.Path, how, want)
	}
}

func testEndConnections(t *testing.T, b *bench) {
	dst := b.Export(t, diskBytes)
	g := b.start(t)
	overlay := g.snapshot(t, 1)
	g.GuestWrite(t, g.id, "vda", 2, 7)
	ok(t, g.hv.EndConnections(t.Context(), g.id, dst.Path))
	ok(t, g.hv.BlockCopy(t.Context(), g.id, "vda", dst, hv.BlockCopyOptions{Shallow: true, Synchronous: true}))
	g.awaitReady(t, hv.JobCopy, dst)
	ok(t, g.hv.EndConnections(t.Context(), g.id, dst.Path))
	g.GuestWrite(t, g.id, "vda", 3, 8)
	eventually(t, "the job ends", func() bool { return g.domain(t).LiveDisk("vda").Mirror == nil })
	g.GuestWrite(t, g.id, "vda", 4, 9)
	g.wantLive(t, overlay, g.src)
	for block, value := range map[int64]byte{2: 7, 3: 8, 4: 9} {
		g.CheckGuest(t, g.id, "vda", block, value)
	}
}
