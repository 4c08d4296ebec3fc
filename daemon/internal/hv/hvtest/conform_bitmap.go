// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var bitmapTests = map[string]func(*testing.T, *bench){
	"StoredBitmapsAreThoseOfAllImagesThatAreOpen":    testStoredBitmaps,
	"ABitmapOfAShallowCopyHasWhatItsOverlayHasAlone": testStoredBitmapsShallow,
	"ACopyToARawImageLosesTheBitmaps":                testStoredBitmapsRaw,
	"ACopyLosesTheBitmapsThatNoteNoWrites":           testIdleBitmaps,
}

func (b *bench) recorded(t *testing.T) *guest {
	t.Helper()
	src := b.image(t, "recorded.qcow2", Qcow2)
	b.AddBitmap(t, src.Path, "b0")
	id := b.define(t, nil, src)
	b.Start(t, id)
	b.GuestWrite(t, id, "vda", 1, 7)
	return &guest{bench: b, id: id, src: src}
}

func (g *guest) wantStored(t *testing.T, want ...string) {
	t.Helper()
	all, err := g.hv.StoredBitmaps(t.Context(), g.id)
	ok(t, err)
	var got []string
	for _, b := range all {
		if b.Name != "b0" || b.Node == "" {
			t.Errorf("there is the bitmap %+v", b)
		}
		got = append(got, b.Path)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("b0 is in %v, want %v", got, want)
	}
}

func testStoredBitmaps(t *testing.T, b *bench) {
	g := b.recorded(t)
	g.wantStored(t, g.src.Path)
	overlay := b.overlay(t, g.src)
	ok(t, g.putOverlay(t.Context(), g.id, "vda", overlay))
	g.wantStored(t, g.src.Path, overlay.Path)
	b.Destroy(t, g.id)
	if _, err := g.hv.StoredBitmaps(t.Context(), g.id); !errors.Is(err, hv.ErrNotActive) {
		t.Errorf("the bitmaps of a domain that is off: %v", err)
	}
}

func (g *guest) copyTo(t *testing.T, format string, shallow bool) hv.Image {
	t.Helper()
	dst := g.image(t, "dst."+format, format)
	ok(t, g.hv.BlockCopy(t.Context(), g.id, "vda", dst, hv.BlockCopyOptions{Shallow: shallow}))
	g.awaitReady(t, hv.JobCopy, dst)
	ok(t, g.hv.Suspend(t.Context(), g.id))
	ok(t, g.hv.Pivot(t.Context(), g.id, "vda"))
	return dst
}

// After a shallow copy a bitmap lacks the writes from before the overlay: the caller must look for
// bitmaps first.
func testStoredBitmapsShallow(t *testing.T, b *bench) {
	g := b.recorded(t)
	overlay := b.overlay(t, g.src)
	ok(t, g.putOverlay(t.Context(), g.id, "vda", overlay))
	dst := g.copyTo(t, Qcow2, true)
	g.wantStored(t, dst.Path)
}

func testIdleBitmaps(t *testing.T, b *bench) {
	src := b.image(t, "kept.qcow2", Qcow2)
	b.AddBitmap(t, src.Path, "b0")
	b.DisableBitmap(t, src.Path, "b0")
	b.AddBitmap(t, src.Path, "b1")
	id := b.define(t, nil, src)
	b.Start(t, id)
	g := &guest{bench: b, id: id, src: src}
	idle := func() (out []string) {
		all, err := g.hv.StoredBitmaps(t.Context(), id)
		ok(t, err)
		for _, b := range all {
			out = append(out, fmt.Sprintf("%s %t", b.Name, b.Idle))
		}
		slices.Sort(out)
		return out
	}
	if got, want := idle(), []string{"b0 true", "b1 false"}; !slices.Equal(got, want) {
		t.Errorf("before the copy: %v, want %v", got, want)
	}
	g.copyTo(t, Qcow2, false)
	if got, want := idle(), []string{"b1 false"}; !slices.Equal(got, want) {
		t.Errorf("after the copy: %v, want %v", got, want)
	}
}

func testStoredBitmapsRaw(t *testing.T, b *bench) {
	g := b.recorded(t)
	g.copyTo(t, Raw, false)
	g.wantStored(t)
}
