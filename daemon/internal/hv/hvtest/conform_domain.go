// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var domainTests = map[string]func(*testing.T, *bench){
	"StatesFollowTheDomain":                      testStates,
	"CallsOnWhatIsNotThereSayNotFound":           testNotFound,
	"CallsOnAStoppedDomainSayNotActive":          testNotActive,
	"StatisticsCountTheAllocationOfTheTop":       testStats,
	"WriteLimitIsSetAndLifted":                   testWriteLimit,
	"EventsTellOfLifecycle":                      testLifecycleEvents,
	"PowerOffEndsTheProcessAtOnce":               testPowerOff,
	"ACancelledCallerIsToldThatNothingIsCertain": testCancelledCaller,
}

func testStates(t *testing.T, b *bench) {
	src := b.image(t, "src.raw", Raw)
	id := b.define(t, nil, src)
	d := b.read(t, id)
	if d.State != hv.StateStopped || !d.Persistent || d.Live != nil || len(d.Config) != 3 || d.ManagedSave {
		t.Errorf("stopped domain = %+v", d)
	}
	b.Start(t, id)
	d = b.read(t, id)
	if d.State != hv.StateRunning || d.LiveDisk("vda").Top() != src || d.ConfigDisk("vda").Top() != src {
		t.Errorf("running domain = %+v", d)
	}
	if !d.LiveDisk("vda").Terminated || len(d.LiveDisk("hda").Chain) != 0 {
		t.Errorf("live disks = %+v", d.Live)
	}
	for range 2 {
		ok(t, b.hv.Suspend(t.Context(), id))
		if d = b.read(t, id); d.State != hv.StatePaused || d.PauseReason != hv.PauseUser {
			t.Errorf("after Suspend: %s, %q", d.State, d.PauseReason)
		}
		b.runStateIs(t, d)
	}
	for range 2 {
		ok(t, b.hv.Resume(t.Context(), id))
		if d = b.read(t, id); d.State != hv.StateRunning || d.PauseReason != "" || d.Booted {
			t.Errorf("after Resume: %s, %q (booted: %t)", d.State, d.PauseReason, d.Booted)
		}
		b.runStateIs(t, d)
	}
	run, first := d.Run, b.process(t, id, "vda")
	if !slices.Contains(first.Images, d.Live[0].Top().Path) || !first.Kept || b.process(t, id, "vdx").Kept {
		t.Errorf("the process was started with the image of vda, and it is %+v", first)
	}
	b.Destroy(t, id)
	if d = b.read(t, id); d.State != hv.StateStopped || d.Live != nil || d.Run != 0 {
		t.Errorf("destroyed domain = %+v", d)
	}
	b.runStateIs(t, d)
	b.Start(t, id)
	if d = b.read(t, id); !d.Booted {
		t.Errorf("a domain that was started without a managed save image was not booted: %+v", d)
	}
	if run == 0 || d.Run == 0 || d.Run == run {
		t.Errorf("the process was %d, and after another start it is %d", run, d.Run)
	}
	if is, err := b.hv.Confinement(t.Context(), id); is.Module() != "" || err != nil {
		t.Errorf("Confinement of a domain that no security module confines = %+v, %v", is, err)
	}
	if denies, err := b.hv.DeniesBelow(t.Context(), id); denies || err != nil {
		t.Errorf("DeniesBelow of a domain that no security module confines = %t, %v", denies, err)
	}
	if again := b.process(t, id, "vda"); again.ID == first.ID || again.ID != b.process(t, id, "vda").ID {
		t.Errorf("the process was %q, and after another start it is %q", first.ID, again.ID)
	}
	b.Destroy(t, id)
	all, err := b.hv.Domains(t.Context())
	ok(t, err)
	for i := range all {
		if all[i].ID == id {
			return
		}
	}
	t.Errorf("Domains() lacks %s", id)
}

func (b *bench) runStateIs(t *testing.T, d *hv.Domain) {
	t.Helper()
	got, err := b.hv.RunState(t.Context(), d.ID)
	ok(t, err)
	if want := (hv.RunState{State: d.State, PauseReason: d.PauseReason, Occupied: d.Occupied}); got != want {
		t.Errorf("RunState = %+v, and Domain says %+v", got, want)
	}
}

func testNotFound(t *testing.T, b *bench) {
	ctx, g := t.Context(), b.start(t)
	overlay := b.overlay(t, g.src)
	nobody := uuid.NewString()
	_, noDomain := b.hv.Domain(ctx, nobody)
	_, noState := b.hv.RunState(ctx, nobody)
	_, noTop := b.hv.TopImage(ctx, nobody, "vda")
	_, noDisk := b.hv.TopImage(ctx, g.id, "vdz")
	_, noJob := b.hv.Job(ctx, g.id, "vdz")
	_, noStats := b.hv.DiskStats(ctx, g.id, "vdz")
	_, noLimit := b.hv.LiveWriteLimit(ctx, g.id, "vdz")
	_, noSave := b.hv.SavingMemory(ctx, nobody)
	for call, err := range map[string]error{
		"Domain":              noDomain,
		"RunState":            noState,
		"TopImage, no domain": noTop,
		"TopImage":            noDisk,
		"SavingMemory":        noSave,
		"Suspend":             b.hv.Suspend(ctx, nobody),
		"PowerOff":            b.hv.PowerOff(ctx, nobody),
		"EndConnections":      b.hv.EndConnections(ctx, nobody, "nbd://127.0.0.1/none"),
		"Resume":              b.hv.Resume(ctx, nobody),
		"Snapshot, no domain": b.putOverlay(ctx, nobody, "vda", overlay),
		"Snapshot":            b.putOverlay(ctx, g.id, "vdz", overlay),
		"SetConfigChain":      b.hv.SetConfigChain(ctx, g.id, "vdz", []hv.Image{g.src}),
		"BlockCopy":           b.hv.BlockCopy(ctx, g.id, "vdz", b.image(t, "dst", Raw), hv.BlockCopyOptions{}),
		"CommitActive":        b.hv.CommitActive(ctx, g.id, "vdz", 0),
		"Pivot":               b.hv.Pivot(ctx, g.id, "vdz"),
		"AbortJob":            b.hv.AbortJob(ctx, g.id, "vdz"),
		"PutWriteLimit":       b.hv.PutWriteLimit(ctx, g.id, "vdz", 1<<20),
		"LiveWriteLimit":      noLimit,
		"GrowDisk":            b.hv.GrowDisk(ctx, g.id, "vdz", 2*diskBytes),
		"Job":                 noJob,
		"DiskStats":           noStats,
	} {
		if !errors.Is(err, hv.ErrNotFound) {
			t.Errorf("%s = %v, want ErrNotFound", call, err)
		}
	}
}

func (b *bench) process(t *testing.T, id, target string) hv.Process {
	t.Helper()
	p, err := b.hv.Process(t.Context(), id, target)
	ok(t, err)
	return p
}

func testNotActive(t *testing.T, b *bench) {
	ctx, src := t.Context(), b.image(t, "src.raw", Raw)
	id := b.define(t, nil, src)
	overlay := b.overlay(t, src)
	_, noJob := b.hv.Job(ctx, id, "vda")
	_, noStats := b.hv.DiskStats(ctx, id, "vda")
	_, noLimit := b.hv.LiveWriteLimit(ctx, id, "vda")
	_, noProcess := b.hv.Process(ctx, id, "vda")
	_, noFiles := b.hv.OpenFiles(ctx, id, src.Path)
	_, noVersion := b.hv.QEMUVersion(ctx, id)
	_, noRule := b.hv.WriteDeniedBy(ctx, id, src.Path)
	_, noRules := b.hv.DeniesBelow(ctx, id)
	_, noConfinement := b.hv.Confinement(ctx, id)
	for call, err := range map[string]error{
		"Suspend":         b.hv.Suspend(ctx, id),
		"Resume":          b.hv.Resume(ctx, id),
		"Snapshot":        b.putOverlay(ctx, id, "vda", overlay),
		"BlockCopy":       b.hv.BlockCopy(ctx, id, "vda", b.image(t, "dst", Raw), hv.BlockCopyOptions{}),
		"CommitActive":    b.hv.CommitActive(ctx, id, "vda", 0),
		"Pivot":           b.hv.Pivot(ctx, id, "vda"),
		"SetJobBandwidth": b.hv.SetJobBandwidth(ctx, id, "vda", 1<<20),
		"EndConnections":  b.hv.EndConnections(ctx, id, "nbd://127.0.0.1/none"),
		"PutWriteLimit":   b.hv.PutWriteLimit(ctx, id, "vda", 1<<20),
		"LiveWriteLimit":  noLimit,
		"GrowDisk":        b.hv.GrowDisk(ctx, id, "vda", 2*diskBytes),
		"Job":             noJob,
		"DiskStats":       noStats,
		"OpenFiles":       noFiles,
		"Process":         noProcess,
		"QEMUVersion":     noVersion,
		"WriteDeniedBy":   noRule,
		"DeniesBelow":     noRules,
		"Confinement":     noConfinement,
	} {
		if !errors.Is(err, hv.ErrNotActive) {
			t.Errorf("%s = %v, want ErrNotActive", call, err)
		}
	}
	ok(t, b.hv.AbortJob(ctx, id, "vda"))
	if got := b.read(t, id).ConfigDisk("vda").Chain; len(got) != 1 || got[0] != src {
		t.Errorf("the refused calls changed the definition: %+v", got)
	}
}

func testPowerOff(t *testing.T, b *bench) {
	g := b.start(t)
	events := b.hv.Events(t.Context())
	overlay := g.snapshot(t, 1)
	off := func() {
		t.Helper()
		for range 2 {
			ok(t, b.hv.PowerOff(t.Context(), g.id))
			if d := g.domain(t); d.State != hv.StateStopped || d.Live != nil {
				t.Fatalf("after PowerOff the domain is %s, with the live disks %+v", d.State, d.Live)
			}
		}
		g.wantConfig(t, overlay, g.src)
		if _, err := b.hv.OpenFiles(t.Context(), g.id, g.src.Path); !errors.Is(err, hv.ErrNotActive) {
			t.Errorf("OpenFiles after PowerOff = %v, want ErrNotActive", err)
		}
	}
	off()
	awaitEvent(t, events, hv.Event{Kind: hv.EventLifecycle, DomainID: g.id, Detail: "stopped"})
	b.Start(t, g.id)
	ok(t, b.hv.Suspend(t.Context(), g.id))
	ok(t, b.hv.CommitActive(t.Context(), g.id, "vda", 1))
	off()
	b.Start(t, g.id)
	if d := g.domain(t); d.State != hv.StateRunning || d.LiveDisk("vda").Mirror != nil {
		t.Errorf("started again the domain is %s, its disk %+v", d.State, d.LiveDisk("vda"))
	}
	g.CheckGuest(t, g.id, "vda", 1, 2)
}

func testStats(t *testing.T, b *bench) {
	g := b.start(t)
	g.snapshot(t, 3)
	stats, err := g.hv.DiskStats(t.Context(), g.id, "vda")
	ok(t, err)
	if stats.AllocationBytes < BlockSize {
		t.Errorf("AllocationBytes = %d after a write of %d", stats.AllocationBytes, BlockSize)
	}
}

func testWriteLimit(t *testing.T, b *bench) {
	g := b.start(t)
	for _, limit := range []int64{1 << 20, 4 << 20, 0} {
		ok(t, g.hv.PutWriteLimit(t.Context(), g.id, "vda", limit))
		if got, err := g.hv.LiveWriteLimit(t.Context(), g.id, "vda"); err != nil || got != limit {
			t.Errorf("the limit is %d, %v; want %d", got, err, limit)
		}
	}
}

func testLifecycleEvents(t *testing.T, b *bench) {
	id := b.define(t, nil, b.image(t, "src.raw", Raw))
	events := b.hv.Events(t.Context())
	if first := <-events; first.Kind != hv.EventConnected {
		t.Fatalf("first event = %+v, want connected", first)
	}
	b.Start(t, id)
	awaitEvent(t, events, hv.Event{Kind: hv.EventLifecycle, DomainID: id, Detail: "started"})
	ok(t, b.hv.Suspend(t.Context(), id))
	awaitEvent(t, events, hv.Event{Kind: hv.EventLifecycle, DomainID: id, Detail: "suspended"})
	ok(t, b.hv.Resume(t.Context(), id))
	awaitEvent(t, events, hv.Event{Kind: hv.EventLifecycle, DomainID: id, Detail: "resumed"})
	b.Destroy(t, id)
	awaitEvent(t, events, hv.Event{Kind: hv.EventLifecycle, DomainID: id, Detail: "stopped"})
}

func awaitEvent(t *testing.T, events <-chan hv.Event, want hv.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for {
		select {
		case got := <-events:
			if got == want {
				return
			}
		case <-ctx.Done():
			t.Fatalf("no event %+v", want)
		}
	}
}

func testCancelledCaller(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.hv.Domains(ctx); !errors.Is(err, hv.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("Domains = %v, want ErrUnavailable and the context's error", err)
	}
	if !b.hv.Up() {
		t.Error("a caller that leaves took the connection down")
	}
	if err := b.hv.Answers(t.Context()); err != nil {
		t.Errorf("Answers = %v after a caller has left", err)
	}
}
