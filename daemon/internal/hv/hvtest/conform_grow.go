// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var growTests = map[string]func(*testing.T, *bench){
	"ARawDiskGrows":                     func(t *testing.T, b *bench) { testGrow(t, b, Raw) },
	"AQcow2DiskGrows":                   func(t *testing.T, b *bench) { testGrow(t, b, Qcow2) },
	"APausedGuestsDiskGrows":            testGrowPaused,
	"ADiskDoesNotGrowUnderABlockJob":    testGrowUnderJob,
	"ABlockDeviceIsNotMadeLarger":       testGrowBlockDevice,
	"AnOverlayGrowsAndWhatIsBelowStays": testGrowOverlay,
}

const grownBytes = 2*diskBytes + 512

func testGrow(t *testing.T, b *bench, format string) {
	src := b.image(t, "src."+format, format)
	b.WriteImage(t, src, 1, 3)
	id := b.define(t, nil, src)
	b.Start(t, id)
	g := &guest{bench: b, id: id, src: src}
	g.wantCapacity(t, diskBytes)
	for range 2 {
		ok(t, g.hv.GrowDisk(t.Context(), id, "vda", grownBytes))
		g.wantCapacity(t, grownBytes)
	}
	last := int64(grownBytes/BlockSize) - 1
	g.CheckGuest(t, id, "vda", last, 0)
	g.GuestWrite(t, id, "vda", last, 7)
	g.CheckGuest(t, id, "vda", last, 7)
	g.CheckGuest(t, id, "vda", 1, 3)
	g.wantLive(t, src)
	g.wantConfig(t, src)
	ok(t, g.hv.PowerOff(t.Context(), id))
	b.CheckImage(t, src, last, 7)
	ok(t, g.hv.PowerOn(t.Context(), id))
	g.wantCapacity(t, grownBytes)
}

func testGrowPaused(t *testing.T, b *bench) {
	g := b.start(t)
	ok(t, g.hv.Suspend(t.Context(), g.id))
	ok(t, g.hv.GrowDisk(t.Context(), g.id, "vda", grownBytes))
	g.wantCapacity(t, grownBytes)
	if d := g.domain(t); d.State != hv.StatePaused {
		t.Errorf("the guest is %s", d.State)
	}
}

func testGrowUnderJob(t *testing.T, b *bench) {
	g := b.start(t)
	overlay := g.snapshot(t, spread()...)
	ok(t, g.hv.BlockCopy(t.Context(), g.id, "vda", g.image(t, "dst.raw", Raw), slowCopy))
	if err := g.hv.GrowDisk(t.Context(), g.id, "vda", grownBytes); !errors.Is(err, hv.ErrBusy) {
		t.Errorf("GrowDisk = %v, want ErrBusy", err)
	}
	g.wantCapacity(t, diskBytes)
	ok(t, g.hv.AbortJob(t.Context(), g.id, "vda"))
	g.wantLive(t, overlay, g.src)
}

func testGrowBlockDevice(t *testing.T, b *bench) {
	device := hv.Image{Type: hv.SourceBlock, Format: Raw, Path: b.BlockDevice(t, diskBytes)}
	id := b.define(t, nil, device)
	b.Start(t, id)
	g := &guest{bench: b, id: id, src: device}
	if err := g.hv.GrowDisk(t.Context(), id, "vda", grownBytes); err == nil {
		t.Error("a block device was made larger")
	}
	g.wantCapacity(t, diskBytes)
	ok(t, g.hv.GrowDisk(t.Context(), id, "vda", diskBytes))
}

func testGrowOverlay(t *testing.T, b *bench) {
	g := b.start(t)
	overlay := g.snapshot(t)
	g.wantCapacity(t, diskBytes)
	ok(t, g.hv.GrowDisk(t.Context(), g.id, "vda", grownBytes))
	g.wantCapacity(t, grownBytes)
	g.wantLive(t, overlay, g.src)
	g.CheckGuest(t, g.id, "vda", 0, 1)
	g.CheckGuest(t, g.id, "vda", grownBytes/BlockSize-1, 0)
}

func (g *guest) wantCapacity(t *testing.T, want int64) {
	t.Helper()
	stats, err := g.hv.DiskStats(t.Context(), g.id, "vda")
	ok(t, err)
	if stats.CapacityBytes != want {
		t.Errorf("the process gives the disk %d bytes, want %d", stats.CapacityBytes, want)
	}
}
