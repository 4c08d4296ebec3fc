// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var dirtyTests = map[string]func(*testing.T, *bench){
	"ABitmapHasTheWritesOfItsOwnProcess":       testDirtyOwn,
	"ASwapLosesNoWriteAndTakesNoneBack":        testDirtySwap,
	"ASwapIsMadeWholeOrNotAtAll":               testDirtySwapRefuses,
	"ABitmapEndsWithItsProcess":                testDirtyProcess,
	"ASuspendedGuestsBitmapsStayAndAreRead":    testDirtySuspended,
	"TrackingSaysWhyNot":                       testDirtyRefuses,
	"WhatIsStoppedIsGoneAndOthersBitmapsStay":  testDirtyStop,
	"TheLastUnitOfADiskMayBeShort":             testDirtyLastUnit,
	"ABitmapWithoutAWriteIsEmptyAndNotMissing": testDirtyEmpty,
}

const unitBytes = 64 << 10

const blocksPerUnit = unitBytes / BlockSize

func (b *bench) sharers(t *testing.T) (one, other *guest) {
	t.Helper()
	src := b.image(t, "shared.raw", Raw)
	var both [2]*guest
	for i := range both {
		id := b.define(t, func(d *hv.Disk) { d.Shareable, d.BootOrder = true, 0 }, src)
		b.Start(t, id)
		both[i] = &guest{bench: b, id: id, src: src}
	}
	return both[0], both[1]
}

func (g *guest) track(t *testing.T, name string) {
	t.Helper()
	ok(t, g.hv.StartTracking(t.Context(), g.id, "vda", name, unitBytes))
}

func (g *guest) swap(t *testing.T, oldName, newName string) {
	t.Helper()
	ok(t, g.hv.SwapTracking(t.Context(), g.id, "vda", oldName, newName, unitBytes))
}

func (g *guest) write(t *testing.T, units ...int64) {
	t.Helper()
	for _, unit := range units {
		g.GuestWrite(t, g.id, "vda", unit*blocksPerUnit+unit%blocksPerUnit, 7)
	}
}

func (g *guest) wantBitmaps(t *testing.T, want ...hv.DirtyBitmap) {
	t.Helper()
	got, err := g.hv.Tracking(t.Context(), g.id, "vda")
	ok(t, err)
	byName := func(all []hv.DirtyBitmap) map[string]hv.DirtyBitmap {
		m := map[string]hv.DirtyBitmap{}
		for _, b := range all {
			m[b.Name] = b
		}
		return m
	}
	if diff := cmp.Diff(byName(want), byName(got)); diff != "" {
		t.Errorf("bitmaps (-want +got):\n%s", diff)
	}
}

func bits(name string, recording bool, units int64) hv.DirtyBitmap {
	return hv.DirtyBitmap{Name: name, Recording: recording, UnitBytes: unitBytes, DirtyBytes: units * unitBytes}
}

func (g *guest) wantDirty(t *testing.T, name string, want ...hv.DirtyRange) {
	t.Helper()
	got, err := g.hv.DirtyUnits(t.Context(), g.id, "vda", name)
	ok(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bitmap %s (-want +got):\n%s", name, diff)
	}
}

func units(first, n int64) hv.DirtyRange {
	return hv.DirtyRange{Offset: first * unitBytes, Bytes: n * unitBytes}
}

func testDirtyOwn(t *testing.T, b *bench) {
	one, other := b.sharers(t)
	one.track(t, "a-r0")
	other.track(t, "a-r0") // names are per process
	one.write(t, 0, 3, 4)
	other.write(t, 3, 9)
	for _, g := range []*guest{one, other} {
		g.swap(t, "a-r0", "a-r1")
	}
	one.wantDirty(t, "a-r0", units(0, 1), units(3, 2))
	other.wantDirty(t, "a-r0", units(3, 1), units(9, 1))
	one.wantBitmaps(t, bits("a-r0", false, 3), bits("a-r1", true, 0))
}

func testDirtySwap(t *testing.T, b *bench) {
	g, _ := b.sharers(t)
	g.track(t, "a-r0")
	g.write(t, 1)
	g.swap(t, "a-r0", "a-r1")
	g.write(t, 1, 2)
	g.swap(t, "a-r1", "a-r2")
	g.write(t, 5)
	ok(t, g.hv.CanTrack(t.Context(), g.id, "vda"))
	g.wantDirty(t, "a-r0", units(1, 1))
	g.wantDirty(t, "a-r1", units(1, 2))
	g.wantBitmaps(t, bits("a-r0", false, 1), bits("a-r1", false, 2), bits("a-r2", true, 1))
	g.wantDirty(t, "a-r1", units(1, 2)) // reading removes nothing
	if _, err := g.hv.DirtyUnits(t.Context(), g.id, "vda", "a-r2"); err == nil {
		t.Error("a bitmap was read that still records")
	}
}

func testDirtySwapRefuses(t *testing.T, b *bench) {
	g, _ := b.sharers(t)
	g.track(t, "a-r0")
	g.write(t, 1)
	if err := g.hv.SwapTracking(t.Context(), g.id, "vda", "none", "a-r1", unitBytes); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("SwapTracking of no bitmap = %v, want ErrNotFound", err)
	}
	g.wantBitmaps(t, bits("a-r0", true, 1))
	g.swap(t, "a-r0", "a-r1")
	if err := g.hv.SwapTracking(t.Context(), g.id, "vda", "a-r0", "a-r1", unitBytes); !errors.Is(err, hv.ErrExists) {
		t.Errorf("SwapTracking to a bitmap that is there = %v, want ErrExists", err)
	}
	g.wantBitmaps(t, bits("a-r0", false, 1), bits("a-r1", true, 0))
}

func testDirtyProcess(t *testing.T, b *bench) {
	g, other := b.sharers(t)
	g.track(t, "a-r0")
	other.track(t, "a-r0")
	g.write(t, 1)
	ok(t, g.hv.PowerOff(t.Context(), g.id))
	if _, err := g.hv.Tracking(t.Context(), g.id, "vda"); !errors.Is(err, hv.ErrNotActive) {
		t.Errorf("Tracking of a domain that is off = %v, want ErrNotActive", err)
	}
	ok(t, g.hv.PowerOn(t.Context(), g.id))
	g.wantBitmaps(t)
	if _, err := g.hv.DirtyUnits(t.Context(), g.id, "vda", "a-r0"); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("DirtyUnits of a bitmap that is gone = %v, want ErrNotFound", err)
	}
	other.wantBitmaps(t, bits("a-r0", true, 0))

	file := filepath.Join(t.TempDir(), "memory")
	ok(t, other.hv.SaveMemory(t.Context(), other.id, file))
	ok(t, other.hv.RestoreMemory(t.Context(), other.id, file, hv.RestoreOptions{}))
	other.wantBitmaps(t)
}

func testDirtySuspended(t *testing.T, b *bench) {
	g, _ := b.sharers(t)
	g.track(t, "a-r0")
	g.write(t, 1, 2)
	ok(t, g.hv.Suspend(t.Context(), g.id))
	g.wantBitmaps(t, bits("a-r0", true, 2))
	g.swap(t, "a-r0", "a-last")
	g.wantDirty(t, "a-r0", units(1, 2))
	ok(t, g.hv.Resume(t.Context(), g.id))
	g.write(t, 6)
	g.wantBitmaps(t, bits("a-r0", false, 2), bits("a-last", true, 1))
}

func testDirtyRefuses(t *testing.T, b *bench) {
	g, _ := b.sharers(t)
	g.track(t, "a-r0")
	off := b.define(t, nil, b.image(t, "off.raw", Raw))
	for name, c := range map[string]struct {
		id, target string
		want       error
	}{
		"off":      {off, "vda", hv.ErrNotActive},
		"no disk":  {g.id, "vdz", hv.ErrNotFound},
		"no such":  {uuid.NewString(), "vda", hv.ErrNotFound},
		"is there": {g.id, "vda", hv.ErrExists},
	} {
		if err := b.hv.StartTracking(t.Context(), c.id, c.target, "a-r0", unitBytes); !errors.Is(err, c.want) {
			t.Errorf("%s: StartTracking = %v, want %v", name, err, c.want)
		}
		if errors.Is(c.want, hv.ErrExists) {
			continue
		}
		if _, err := b.hv.Tracking(t.Context(), c.id, c.target); !errors.Is(err, c.want) {
			t.Errorf("%s: Tracking = %v, want %v", name, err, c.want)
		}
		if _, err := b.hv.DirtyUnits(t.Context(), c.id, c.target, "a-r0"); !errors.Is(err, c.want) {
			t.Errorf("%s: DirtyUnits = %v, want %v", name, err, c.want)
		}
		if err := b.hv.CanTrack(t.Context(), c.id, c.target); !errors.Is(err, c.want) {
			t.Errorf("%s: CanTrack = %v, want %v", name, err, c.want)
		}
		if err := b.hv.StopTracking(t.Context(), c.id, c.target, "a-"); !errors.Is(err, c.want) {
			t.Errorf("%s: StopTracking = %v, want %v", name, err, c.want)
		}
	}
	g.wantBitmaps(t, bits("a-r0", true, 0))
}

func testDirtyStop(t *testing.T, b *bench) {
	g, _ := b.sharers(t)
	g.track(t, "a-g1-r0")
	g.swap(t, "a-g1-r0", "a-g1-r1")
	g.track(t, "a-g2-r0")
	g.track(t, "b-g1-r0")
	g.wantDirty(t, "a-g1-r0")
	for range 2 {
		ok(t, g.hv.StopTracking(t.Context(), g.id, "vda", "a-g1-"))
		g.wantBitmaps(t, bits("a-g2-r0", true, 0), bits("b-g1-r0", true, 0))
	}
	ok(t, g.hv.StopTracking(t.Context(), g.id, "vda", "a-"))
	g.wantBitmaps(t, bits("b-g1-r0", true, 0))
}

func testDirtyLastUnit(t *testing.T, b *bench) {
	const sizeBytes = diskBytes + 3*BlockSize
	src := hv.Image{Type: hv.SourceFile, Format: Raw, Path: b.Path(t, "uneven.raw")}
	b.CreateImage(t, src.Path, Raw, sizeBytes)
	g := &guest{bench: b, id: b.define(t, nil, src), src: src}
	b.Start(t, g.id)
	g.track(t, "a-r0")
	g.GuestWrite(t, g.id, "vda", diskBytes/BlockSize+2, 7)
	g.swap(t, "a-r0", "a-r1")
	g.wantDirty(t, "a-r0", hv.DirtyRange{Offset: diskBytes, Bytes: 3 * BlockSize})
	g.wantBitmaps(t, bits("a-r0", false, 1), bits("a-r1", true, 0))
}

func testDirtyEmpty(t *testing.T, b *bench) {
	g, _ := b.sharers(t)
	g.track(t, "a-r0")
	g.swap(t, "a-r0", "a-r1")
	g.wantDirty(t, "a-r0")
	if _, err := g.hv.DirtyUnits(t.Context(), g.id, "vda", "a-r9"); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("DirtyUnits of no bitmap = %v, want ErrNotFound", err)
	}
}
