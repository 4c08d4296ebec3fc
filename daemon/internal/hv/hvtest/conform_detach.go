// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var detachTests = map[string]func(*testing.T, *bench){
	"AGuestIsAskedAndTheDiskStaysUntilItLetsGo":  testDetachLive,
	"APausedGuestAnswersWhenItRuns":              testDetachPaused,
	"ASCSIDiskGoesWithoutItsGuest":               testDetachSCSI,
	"DetachOfWhatIsNotThereIsNoError":            testDetachNothing,
	"DetachOfADiskWithABlockJobIsRefused":        testDetachBusy,
	"ARequestEndsWithItsProcess":                 testRequestEnds,
	"WhatWasDetachedComesBackAtTheSameAddress":   testReplug,
	"ADetachedDefinitionLeavesTheLiveDiskOpened": testDetachConfig,
}

func testDetachLive(t *testing.T, b *bench) {
	g := b.start(t)
	spec := g.spec(t, "vdc")
	g.attach(t, g.id, hv.Live, spec)
	events := g.hv.Events(t.Context())
	g.ask(t, "vdc")
	g.GuestWrite(t, g.id, "vdc", 1, 2)
	g.LetGo(t, g.id, "vdc")
	g.awaitGone(t, "vdc")
	awaitEvent(t, events, hv.Event{Kind: hv.EventDeviceRemoved, DomainID: g.id})
	eventually(t, "the image is closed", func() bool { return g.openFor(t, spec.Image) == "" })
	g.CheckImage(t, spec.Image, 1, 2)
	g.WriteImage(t, spec.Image, 1, 3)
	g.attach(t, g.id, hv.Live, spec)
	g.CheckGuest(t, g.id, "vdc", 1, 3)
}

func testDetachPaused(t *testing.T, b *bench) {
	g := b.start(t)
	g.attach(t, g.id, hv.Live, g.spec(t, "vdc"))
	ok(t, g.hv.Suspend(t.Context(), g.id))
	g.ask(t, "vdc")
	ok(t, g.hv.Resume(t.Context(), g.id))
	g.LetGo(t, g.id, "vdc")
	g.awaitGone(t, "vdc")
}

func testDetachSCSI(t *testing.T, b *bench) {
	g := b.start(t)
	spec := g.spec(t, "sda")
	spec.Bus = "scsi"
	for _, paused := range []bool{false, true} {
		if paused {
			ok(t, g.hv.Suspend(t.Context(), g.id))
		}
		g.attach(t, g.id, hv.Live, spec)
		ok(t, g.hv.DetachDisk(t.Context(), g.id, hv.Live, "sda"))
		g.awaitGone(t, "sda")
	}
}

func testDetachNothing(t *testing.T, b *bench) {
	ctx, g := t.Context(), b.start(t)
	off := b.define(t, nil, b.image(t, "off.raw", Raw))
	ok(t, g.hv.DetachDisk(ctx, g.id, hv.Live, "vdz"))
	ok(t, g.hv.DetachDisk(ctx, g.id, hv.Config, "vdz"))
	ok(t, g.hv.DetachDisk(ctx, off, hv.Live, "vda"))
	if b.read(t, off).ConfigDisk("vda") == nil {
		t.Error("a request for a live disk changed the definition")
	}
	for _, where := range []hv.Where{hv.Live, hv.Config} {
		if err := g.hv.DetachDisk(ctx, uuid.NewString(), where, "vda"); !errors.Is(err, hv.ErrNotFound) {
			t.Errorf("DetachDisk of no domain = %v, want ErrNotFound", err)
		}
	}
}

func testDetachBusy(t *testing.T, b *bench) {
	g := b.start(t)
	dst := g.image(t, "dst.raw", Raw)
	ok(t, g.hv.BlockCopy(t.Context(), g.id, "vda", dst, hv.BlockCopyOptions{}))
	g.awaitReady(t, hv.JobCopy, dst)
	if err := g.hv.DetachDisk(t.Context(), g.id, hv.Live, "vda"); !errors.Is(err, hv.ErrBusy) {
		t.Errorf("DetachDisk = %v, want ErrBusy", err)
	}
	g.awaitReady(t, hv.JobCopy, dst)
	ok(t, g.hv.AbortJob(t.Context(), g.id, "vda"))
	g.unplug(t, "vda")
}

func testRequestEnds(t *testing.T, b *bench) {
	g := b.start(t)
	g.attach(t, g.id, hv.Live, g.spec(t, "vdc"))
	g.ask(t, "vdc")
	g.ask(t, "vda")
	g.Destroy(t, g.id)
	g.Start(t, g.id)
	d := g.domain(t)
	if d.LiveDisk("vdc") != nil || d.LiveDisk("vda") == nil {
		t.Errorf("the domain did not start with its definition: %+v", d.Live)
	}
}

func testReplug(t *testing.T, b *bench) {
	g := b.start(t)
	spec := g.spec(t, "vdc")
	g.attach(t, g.id, hv.Live, spec)
	definition := g.definition(t, g.id, hv.Live, "vdc")
	before := g.domain(t).LiveDisk("vdc")
	g.unplug(t, "vdc")
	g.attach(t, g.id, hv.Live, hv.DiskSpec{Target: "vdc", Definition: definition})
	if after := g.domain(t).LiveDisk("vdc"); after.Address != before.Address || after.Serial != before.Serial {
		t.Errorf("disk = %+v, was %+v", after, before)
	}
}

func testDetachConfig(t *testing.T, b *bench) {
	g := b.start(t)
	spec := g.spec(t, "vdc")
	g.attach(t, g.id, hv.Live, spec)
	g.attach(t, g.id, hv.Config, hv.DiskSpec{Target: "vdc", Definition: g.definition(t, g.id, hv.Live, "vdc")})
	ok(t, g.hv.DetachDisk(t.Context(), g.id, hv.Config, "vdc"))
	if how := g.openFor(t, spec.Image); how != "w" || g.domain(t).LiveDisk("vdc") == nil {
		t.Errorf("the live disk is open for %q, want writing", how)
	}
	g.Destroy(t, g.id)
	g.Start(t, g.id)
	if g.domain(t).LiveDisk("vdc") != nil {
		t.Error("the domain started with a disk that its definition has not")
	}
}
