// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var copyTests = map[string]func(*testing.T, *bench){
	"ShallowCopyToRawAndPivot":          func(t *testing.T, b *bench) { testShallowCopy(t, b, b.image(t, "dst.raw", Raw)) },
	"ShallowCopyToQcow2AndPivot":        func(t *testing.T, b *bench) { testShallowCopy(t, b, b.image(t, "dst.qcow2", Qcow2)) },
	"ShallowCopyOverBasesAndPivot":      testCopyOverBases,
	"ShallowCopyToBlockDeviceAndPivot":  testCopyToBlockDevice,
	"ADiskIsTheBeginningOfALargerImage": testCopyToASlice,
	"ADiskIsAnImageOnABlockDevice":      testCopyToAnImageOnADevice,
	"FullCopyOfShareableDiskAndPivot":   testFullCopy,
	"PivotBeforeReadyChangesNothing":    testPivotBeforeReady,
	"CopyToAnotherSizeComesToNothing":   testSizeMismatch,
	"AJobDiesWithItsDomain":             testJobDies,
	"AJobBeginsOfASuspendedGuest":       testJobBeginsSuspended,
}

var commitTests = map[string]func(*testing.T, *bench){
	"ActiveCommitGoesOneLayerDeep":      testCommit,
	"ActiveCommitNeedsABackingImage":    testCommitWithoutBacking,
	"AnAbortedCommitLeavesTheOverlayOn": testAbortCommit,
}

func testCopyToBlockDevice(t *testing.T, b *bench) {
	device := b.BlockDevice(t, diskBytes)
	testShallowCopy(t, b, hv.Image{Type: hv.SourceBlock, Format: Raw, Path: device})
}

// testCopyToASlice tests an image that is the beginning of a larger file, device or export: as the
// target of a copy, as the top, below an overlay, and as the target of a commit. The rest of the
// file does not change.
func testCopyToASlice(t *testing.T, b *bench) {
	const largerBytes = diskBytes + 1<<20
	for name, larger := range map[string]func(*testing.T) hv.Image{
		"file": func(t *testing.T) hv.Image {
			t.Helper()
			path := b.Path(t, "larger.raw")
			b.CreateImage(t, path, Raw, largerBytes)
			return hv.Image{Type: hv.SourceFile, Format: Raw, Path: path}
		},
		"block device": func(t *testing.T) hv.Image {
			t.Helper()
			return hv.Image{Type: hv.SourceBlock, Format: Raw, Path: b.BlockDevice(t, largerBytes)}
		},
		"export": func(t *testing.T) hv.Image { t.Helper(); return b.Export(t, largerBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			dst := larger(t)
			b.WriteImage(t, dst, diskBytes/BlockSize, 9)
			whole := dst
			dst.SliceBytes = diskBytes
			g := testShallowCopy(t, b, dst)
			defer b.CheckImage(t, whole, diskBytes/BlockSize, 9)
			g.overlaidAndCommitted(t, dst)
			if err := g.hv.GrowDisk(t.Context(), g.id, "vda", diskBytes+512); !errors.Is(err, hv.ErrUnsupported) {
				t.Errorf("GrowDisk of a slice = %v, want ErrUnsupported", err)
			}
			g.wantSize(t, diskBytes)
		})
	}
}

// testCopyToAnImageOnADevice tests a disk on a qcow2 image on a larger block device: the disk has
// the image's size in each role of testCopyToASlice.
func testCopyToAnImageOnADevice(t *testing.T, b *bench) {
	dst := hv.Image{Type: hv.SourceBlock, Format: Qcow2, Path: b.BlockDevice(t, 2*diskBytes)}
	b.CreateOnDevice(t, dst.Path, diskBytes)
	g := testShallowCopy(t, b, dst)
	g.overlaidAndCommitted(t, dst)
}

func (g *guest) overlaidAndCommitted(t *testing.T, dst hv.Image) {
	t.Helper()
	g.wantSize(t, diskBytes)
	overlay := g.snapshot(t, 7)
	g.wantLive(t, overlay, dst)
	if how := g.openFor(t, dst); how != "r" {
		t.Errorf("below an overlay dst is open for %q, want reading", how)
	}
	ok(t, g.hv.SetConfigChain(t.Context(), g.id, "vda", []hv.Image{overlay, dst}))
	g.wantConfig(t, overlay, dst)
	ok(t, g.hv.CommitActive(t.Context(), g.id, "vda", 0))
	g.awaitReady(t, hv.JobActiveCommit, dst)
	ok(t, g.hv.Pivot(t.Context(), g.id, "vda"))
	g.wantLive(t, dst)
	g.wantSize(t, diskBytes)
	g.CheckGuest(t, g.id, "vda", 7, 2)
	ok(t, g.hv.SetConfigChain(t.Context(), g.id, "vda", []hv.Image{dst}))
	g.wantConfig(t, dst)
}

func (g *guest) wantSize(t *testing.T, sizeBytes int64) {
	t.Helper()
	stats, err := g.hv.DiskStats(t.Context(), g.id, "vda")
	ok(t, err)
	if stats.CapacityBytes != sizeBytes {
		t.Errorf("the guest sees %d bytes, want %d", stats.CapacityBytes, sizeBytes)
	}
}

// testShallowCopy tests the core of a migration: dst has the content of src, a job copies the
// overlay to dst, and the guest runs on dst.
func testShallowCopy(t *testing.T, b *bench, dst hv.Image) *guest {
	t.Helper()
	g := b.start(t)
	b.WriteImage(t, dst, 0, 1)
	overlay := g.snapshot(t, 1)
	events := g.hv.Events(t.Context())
	ok(t, g.hv.BlockCopy(t.Context(), g.id, "vda", dst, hv.BlockCopyOptions{
		Shallow: true, Synchronous: true, BandwidthBytesPerSecond: 1 << 30, GranularityBytes: 64 << 10,
	}))
	g.wantLive(t, overlay, g.src)
	g.awaitReady(t, hv.JobCopy, dst)
	awaitEvent(t, events, hv.Event{Kind: hv.EventBlockJob, DomainID: g.id, Path: overlay.Path, Detail: "ready"})
	g.GuestWrite(t, g.id, "vda", 5, 6)

	ok(t, g.hv.Suspend(t.Context(), g.id))
	g.awaitDrained(t)
	ok(t, g.hv.Pivot(t.Context(), g.id, "vda"))
	g.wantLive(t, dst)
	g.wantConfig(t, dst)
	if d := g.domain(t); d.State != hv.StatePaused || d.LiveDisk("vda").Mirror != nil {
		t.Errorf("after the pivot: %s, mirror %+v", d.State, d.LiveDisk("vda").Mirror)
	}
	for _, left := range []hv.Image{overlay, g.src} {
		if how := g.openFor(t, left); how != "" {
			t.Errorf("%s is still open for %q after the pivot", left.Path, how)
		}
	}
	if how := g.openFor(t, dst); how != "w" {
		t.Errorf("dst is open for %q, want writing", how)
	}
	ok(t, g.hv.Resume(t.Context(), g.id))
	for block, value := range map[int64]byte{0: 1, 1: 2, 2: 0, 5: 6} {
		g.CheckGuest(t, g.id, "vda", block, value)
	}
	g.CheckImage(t, g.src, 1, 0)
	return g
}

func testCopyOverBases(t *testing.T, b *bench) {
	base := b.image(t, "base.raw", Raw)
	b.WriteImage(t, base, 3, 7)
	b.WriteImage(t, base, 4, 8)
	b.WriteImage(t, base, 20, 6)
	middle := b.over(t, "middle.qcow2", base)
	src, dst := b.over(t, "src.qcow2", middle), b.over(t, "dst.qcow2", middle)
	id := b.define(t, nil, src, middle, base)
	b.Start(t, id)
	g := &guest{bench: b, id: id, src: src}
	g.GuestWrite(t, id, "vda", 4, 9)
	b.WriteImage(t, dst, 4, 9)
	overlay := g.snapshot(t, 1)
	ok(t, g.hv.BlockCopy(t.Context(), id, "vda", dst, hv.BlockCopyOptions{Shallow: true, Backing: []hv.Image{middle, base}, GranularityBytes: 64 << 10}))
	g.awaitReady(t, hv.JobCopy, dst)
	g.GuestWrite(t, id, "vda", 21, 5)
	ok(t, g.hv.Suspend(t.Context(), id))
	g.awaitDrained(t)
	ok(t, g.hv.Pivot(t.Context(), id, "vda"))
	g.wantLive(t, dst, middle, base)
	g.wantConfig(t, dst, middle, base)
	for _, left := range []hv.Image{overlay, src} {
		if how := g.openFor(t, left); how != "" {
			t.Errorf("%s is still open for %q after the pivot", left.Path, how)
		}
	}
	if how := g.openFor(t, base); how != "r" {
		t.Errorf("the base image is open for %q, want reading", how)
	}
	ok(t, g.hv.Resume(t.Context(), id))
	for block, value := range map[int64]byte{1: 2, 3: 7, 4: 9, 20: 6, 21: 5} {
		g.CheckGuest(t, id, "vda", block, value)
	}
	b.CheckImage(t, base, 4, 8)
}

func testFullCopy(t *testing.T, b *bench) {
	src, dst := b.image(t, "src.raw", Raw), b.image(t, "dst.raw", Raw)
	b.WriteImage(t, src, 4, 9)
	b.WriteImage(t, dst, 5, 9)
	id := b.define(t, func(d *hv.Disk) { d.Shareable = true }, src)
	b.Start(t, id)
	g := &guest{bench: b, id: id, src: src}
	ok(t, g.hv.BlockCopy(t.Context(), id, "vda", dst, hv.BlockCopyOptions{Synchronous: true}))
	g.awaitReady(t, hv.JobCopy, dst)
	ok(t, g.hv.Pivot(t.Context(), id, "vda"))
	g.wantLive(t, dst)
	g.CheckGuest(t, id, "vda", 4, 9)
	g.CheckGuest(t, id, "vda", 5, 0)
}

var slowCopy = hv.BlockCopyOptions{Shallow: true, BandwidthBytesPerSecond: 1}

func testPivotBeforeReady(t *testing.T, b *bench) {
	ctx, g := t.Context(), b.start(t)
	overlay := g.snapshot(t, spread()...)
	dst := g.image(t, "dst.raw", Raw)
	ok(t, g.hv.BlockCopy(ctx, g.id, "vda", dst, slowCopy))
	if err := g.hv.Pivot(ctx, g.id, "vda"); !errors.Is(err, hv.ErrNotReady) {
		t.Errorf("Pivot = %v, want ErrNotReady", err)
	}
	g.wantLive(t, overlay, g.src)
	job, err := g.hv.Job(ctx, g.id, "vda")
	ok(t, err)
	if job == nil || job.Kind != hv.JobCopy || job.BandwidthBytesPerSecond != 1 || job.End <= 0 {
		t.Errorf("Job = %+v, want a copy with a bandwidth of 1", job)
	}
	if how := g.openFor(t, dst); how != "w" {
		t.Errorf("the target is open for %q, want writing", how)
	}
	err = g.hv.BlockCopy(ctx, g.id, "vda", g.image(t, "second.raw", Raw), hv.BlockCopyOptions{Shallow: true})
	if !errors.Is(err, hv.ErrBusy) {
		t.Errorf("a second BlockCopy = %v, want ErrBusy", err)
	}
	ok(t, g.hv.SetJobBandwidth(ctx, g.id, "vda", 0))
	g.awaitReady(t, hv.JobCopy, dst)

	for range 2 {
		ok(t, g.hv.AbortJob(ctx, g.id, "vda"))
	}
	job, err = g.hv.Job(ctx, g.id, "vda")
	ok(t, err)
	if job != nil || g.domain(t).LiveDisk("vda").Mirror != nil {
		t.Errorf("after AbortJob: job %+v", job)
	}
	g.wantLive(t, overlay, g.src)
	g.wantConfig(t, overlay, g.src)
	if err := g.hv.Pivot(ctx, g.id, "vda"); err == nil || errors.Is(err, hv.ErrNotReady) {
		t.Errorf("Pivot without a job = %v, want an error other than ErrNotReady", err)
	}
}

func spread() []int64 {
	var blocks []int64
	for offset := int64(0); offset < diskBytes; offset += 256 << 10 {
		blocks = append(blocks, offset/BlockSize)
	}
	return blocks
}

func testSizeMismatch(t *testing.T, b *bench) {
	g := b.start(t)
	overlay := g.snapshot(t, 1)
	small := hv.Image{Type: hv.SourceFile, Format: Raw, Path: b.Path(t, "small.raw")}
	b.CreateImage(t, small.Path, Raw, diskBytes/2)
	_ = g.hv.BlockCopy(t.Context(), g.id, "vda", small, hv.BlockCopyOptions{Shallow: true})
	eventually(t, "the job is gone", func() bool {
		job, err := g.hv.Job(t.Context(), g.id, "vda")
		ok(t, err)
		return job == nil && g.domain(t).LiveDisk("vda").Mirror == nil
	})
	g.wantLive(t, overlay, g.src)
	g.CheckGuest(t, g.id, "vda", 1, 2)
}

func testJobDies(t *testing.T, b *bench) {
	g := b.start(t)
	overlay := g.snapshot(t, 1)
	dst := g.image(t, "dst.raw", Raw)
	ok(t, g.hv.BlockCopy(t.Context(), g.id, "vda", dst, hv.BlockCopyOptions{Shallow: true}))
	g.awaitReady(t, hv.JobCopy, dst)
	g.Destroy(t, g.id)
	g.wantConfig(t, overlay, g.src)
	g.Start(t, g.id)
	g.wantLive(t, overlay, g.src)
	if m := g.domain(t).LiveDisk("vda").Mirror; m != nil {
		t.Errorf("a job survived its domain: %+v", m)
	}
	g.CheckGuest(t, g.id, "vda", 1, 2)
}

func testJobBeginsSuspended(t *testing.T, b *bench) {
	ctx, g := t.Context(), b.start(t)
	version, err := g.hv.QEMUVersion(ctx, g.id)
	ok(t, err)
	about, err := g.hv.About(ctx)
	ok(t, err)
	if version != about.QEMU || version == (hv.Version{}) {
		t.Errorf("a domain that was just started has QEMU %s, and QEMU %s is installed", version, about.QEMU)
	}
	overlay := g.snapshot(t, 1)
	dst := g.image(t, "dst.raw", Raw)
	b.WriteImage(t, dst, 0, 1)
	ok(t, g.hv.Suspend(ctx, g.id))
	ok(t, g.hv.BlockCopy(ctx, g.id, "vda", dst, hv.BlockCopyOptions{Shallow: true, Synchronous: true}))
	g.awaitTracking(t)
	if d := g.domain(t); d.State != hv.StatePaused {
		t.Errorf("the job has made the domain %s", d.State)
	}
	ok(t, g.hv.Resume(ctx, g.id))
	g.GuestWrite(t, g.id, "vda", 5, 6)
	g.awaitReady(t, hv.JobCopy, dst)
	ok(t, g.hv.Suspend(ctx, g.id))
	g.awaitDrained(t)
	ok(t, g.hv.AbortJob(ctx, g.id, "vda"))
	g.wantLive(t, overlay, g.src)

	ok(t, g.hv.CommitActive(ctx, g.id, "vda", 0))
	g.awaitTracking(t)
	ok(t, g.hv.Resume(ctx, g.id))
	g.GuestWrite(t, g.id, "vda", 6, 7)
	g.awaitReady(t, hv.JobActiveCommit, g.src)
	ok(t, g.hv.Pivot(ctx, g.id, "vda"))
	g.wantLive(t, g.src)
	for block, value := range map[int64]byte{0: 1, 1: 2, 5: 6, 6: 7} {
		g.CheckGuest(t, g.id, "vda", block, value)
	}
	g.Destroy(t, g.id)
	for block, value := range map[int64]byte{0: 1, 1: 2, 5: 6, 6: 0} {
		g.CheckImage(t, dst, block, value)
	}
}

func (g *guest) awaitTracking(t *testing.T) {
	t.Helper()
	eventually(t, "the job tracks all writes", func() bool {
		job, err := g.hv.Job(t.Context(), g.id, "vda")
		ok(t, err)
		if job == nil {
			t.Fatal("the job is gone")
		}
		return job.Tracking
	})
}

// testCommit commits into an image over a template, which must never be written.
func testCommit(t *testing.T, b *bench) {
	template := b.image(t, "template.raw", Raw)
	b.WriteImage(t, template, 9, 9)
	src := b.overlay(t, template)
	id := b.define(t, nil, src, template)
	b.Start(t, id)
	g := &guest{bench: b, id: id, src: src}
	overlay := g.snapshot(t, 1)
	g.wantLive(t, overlay, src, template)

	ok(t, g.hv.CommitActive(t.Context(), id, "vda", 1<<30))
	g.awaitReady(t, hv.JobActiveCommit, src)
	ok(t, g.hv.Pivot(t.Context(), id, "vda"))
	g.wantLive(t, src, template)
	g.wantConfig(t, src, template)
	if how := g.openFor(t, overlay); how != "" {
		t.Errorf("the overlay is still open for %q", how)
	}
	g.GuestWrite(t, id, "vda", 2, 3)
	for block, value := range map[int64]byte{1: 2, 2: 3, 9: 9} {
		g.CheckGuest(t, id, "vda", block, value)
	}
	g.Destroy(t, id)
	g.CheckImage(t, src, 1, 2)
	g.CheckImage(t, template, 1, 0)
	g.CheckImage(t, template, 9, 9)
}

func testCommitWithoutBacking(t *testing.T, b *bench) {
	g := b.start(t)
	if err := g.hv.CommitActive(t.Context(), g.id, "vda", 0); !errors.Is(err, hv.ErrUnsupported) {
		t.Errorf("CommitActive = %v, want ErrUnsupported", err)
	}
}

func testAbortCommit(t *testing.T, b *bench) {
	g := b.start(t)
	overlay := g.snapshot(t, 1)
	ok(t, g.hv.CommitActive(t.Context(), g.id, "vda", 0))
	g.awaitReady(t, hv.JobActiveCommit, g.src)
	ok(t, g.hv.AbortJob(t.Context(), g.id, "vda"))
	g.GuestWrite(t, g.id, "vda", 1, 8)
	g.wantLive(t, overlay, g.src)
	g.CheckGuest(t, g.id, "vda", 1, 8)
	// QEMU 7 reopens src read-only; QEMU 10 keeps it open as in the commit.
	if got := g.openFor(t, g.src); got == "" {
		t.Error("src is not open after the abort")
	}
}

// awaitReady waits for Ready, the only reliable state before a pivot.
func (g *guest) awaitReady(t *testing.T, kind hv.JobKind, target hv.Image) {
	t.Helper()
	eventually(t, "the job is ready", func() bool {
		m := g.domain(t).LiveDisk("vda").Mirror
		if m == nil {
			t.Fatal("the job is gone")
		}
		if m.Job != kind || m.Image != target {
			t.Fatalf("mirror = %+v, want a %s to %s", m, kind, target.Path)
		}
		return m.Ready
	})
}

func (g *guest) awaitDrained(t *testing.T) {
	t.Helper()
	eventually(t, "nothing is dirty", func() bool {
		job, err := g.hv.Job(t.Context(), g.id, "vda")
		ok(t, err)
		return job != nil && job.Current == job.End
	})
}
