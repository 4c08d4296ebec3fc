// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var exportTests = map[string]func(*testing.T, *bench){
	"AnExportIsFrozenCommittedToAndLeft": testExport,
}

// testExport: a disk that the guest has from an NBD server is frozen below an overlay, committed
// to, frozen again, and left for a file.
func testExport(t *testing.T, b *bench) {
	src, dst := b.Export(t, diskBytes), b.image(t, "dst.raw", Raw)
	b.WriteImage(t, src, 0, 1)
	id := b.define(t, nil, src)
	b.Start(t, id)
	g := &guest{bench: b, id: id, src: src}
	g.wantLive(t, src)
	g.wantConfig(t, src)
	if _, err := g.hv.OpenFiles(t.Context(), id, src.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the kernel's word on an export: %v, want that there is no such file", err)
	}

	overlay := g.overlay(t, src)
	ok(t, g.hv.SetConfigChain(t.Context(), id, "vda", []hv.Image{overlay, src}))
	ok(t, g.hv.Snapshot(t.Context(), id, "vda", overlay))
	g.wantLive(t, overlay, src)
	ok(t, g.hv.SetConfigChain(t.Context(), id, "vda", []hv.Image{overlay, src}))
	g.wantConfig(t, overlay, src)
	g.GuestWrite(t, id, "vda", 1, 2)
	g.CheckImage(t, src, 1, 0)

	ok(t, g.hv.CommitActive(t.Context(), id, "vda", 0))
	g.awaitReady(t, hv.JobActiveCommit, src)
	ok(t, g.hv.Pivot(t.Context(), id, "vda"))
	g.wantLive(t, src)
	ok(t, g.hv.SetConfigChain(t.Context(), id, "vda", []hv.Image{src}))
	g.wantConfig(t, src)
	g.CheckGuest(t, id, "vda", 1, 2)

	b.WriteImage(t, dst, 0, 1)
	b.WriteImage(t, dst, 1, 2)
	g.snapshot(t, 3)
	ok(t, g.hv.BlockCopy(t.Context(), id, "vda", dst, hv.BlockCopyOptions{Shallow: true, Synchronous: true}))
	g.awaitReady(t, hv.JobCopy, dst)
	ok(t, g.hv.Pivot(t.Context(), id, "vda"))
	g.wantLive(t, dst)
	g.wantConfig(t, dst)
	for block, value := range map[int64]byte{0: 1, 1: 2, 3: 2} {
		g.CheckGuest(t, id, "vda", block, value)
	}
	g.CheckImage(t, src, 3, 0)
}
