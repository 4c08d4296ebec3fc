// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var chainTests = map[string]func(*testing.T, *bench){
	"SnapshotFreezesWhatWasOnTop":                 testSnapshot,
	"SnapshotIsAcceptedAfterTheDefinitionNamesIt": testSnapshotAfterConfig,
	"SnapshotOfShareableDiskIsRefused":            testSnapshotShareable,
	"SetConfigChainChangesNothingElse":            testSetConfigChain,
	"SetConfigChainNamesASecretAndDropsIt":        testSetConfigChainSecret,
	"SetConfigChainRefusesWhatItCannotName":       testSetConfigChainRefuses,
	"ADefinitionStartsWithItsStatedChain":         testStartUsesConfigChain,
	"TopImageIsThatOfTheProcessWhileThereIsOne":   testTopImage,
}

func testSnapshot(t *testing.T, b *bench) {
	g := b.start(t)
	before := g.domain(t)
	overlay := g.snapshot(t, 1)
	g.wantLive(t, overlay, g.src)
	g.wantConfig(t, overlay, g.src)
	if diff := cmp.Diff(bystanders(before.Live), bystanders(g.domain(t).Live)); diff != "" {
		t.Errorf("other disks changed (-before +after):\n%s", diff)
	}
	if got := g.openFor(t, g.src); got != "r" {
		t.Errorf("src is open for %q after the snapshot, want reading only", got)
	}
	if got := g.openFor(t, overlay); got != "w" {
		t.Errorf("the overlay is open for %q, want writing", got)
	}
	g.CheckGuest(t, g.id, "vda", 0, 1)
	g.CheckGuest(t, g.id, "vda", 1, 2)
	g.Destroy(t, g.id)
	g.CheckImage(t, g.src, 1, 0)
	g.CheckImage(t, overlay, 1, 2)
}

func testTopImage(t *testing.T, b *bench) {
	g := b.start(t)
	wantTop := func(want hv.Image) {
		t.Helper()
		got, err := g.hv.TopImage(t.Context(), g.id, "vda")
		ok(t, err)
		if got != want.Path {
			t.Errorf("the top image is %s, want %s", got, want.Path)
		}
	}
	wantTop(g.src)
	overlay := g.snapshot(t, 1)
	wantTop(overlay)
	ok(t, g.hv.SetConfigChain(t.Context(), g.id, "vda", []hv.Image{g.src}))
	wantTop(overlay)
	g.Destroy(t, g.id)
	wantTop(g.src)
}

// The persistent definition names the overlay before the live switch, so that no crash in between
// can lose a write.
func testSnapshotAfterConfig(t *testing.T, b *bench) {
	g := b.start(t)
	overlay := g.overlay(t, g.src)
	ok(t, g.hv.SetConfigChain(t.Context(), g.id, "vda", []hv.Image{overlay, g.src}))
	g.wantLive(t, g.src)
	ok(t, g.putOverlay(t.Context(), g.id, "vda", overlay))
	g.wantLive(t, overlay, g.src)
	g.wantConfig(t, overlay, g.src)
	if !g.domain(t).ConfigDisk("vda").Terminated {
		t.Error("the snapshot took the stated end off the definition")
	}
}

func testSnapshotShareable(t *testing.T, b *bench) {
	src := b.image(t, "src.raw", Raw)
	id := b.define(t, func(d *hv.Disk) { d.Shareable = true }, src)
	b.Start(t, id)
	g := &guest{bench: b, id: id, src: src}
	if !g.domain(t).LiveDisk("vda").Shareable {
		t.Error("the disk is not shown as shareable")
	}
	err := b.putOverlay(t.Context(), id, "vda", b.overlay(t, src))
	if !errors.Is(err, hv.ErrUnsupported) {
		t.Errorf("Snapshot = %v, want ErrUnsupported", err)
	}
	g.wantLive(t, src)
	g.wantConfig(t, src)
}

func testSetConfigChain(t *testing.T, b *bench) {
	for _, active := range []bool{false, true} {
		src := b.image(t, "src.raw", Raw)
		id := b.define(t, nil, src)
		if active {
			b.Start(t, id)
		}
		before := b.read(t, id)
		chain := []hv.Image{b.overlay(t, src), {Type: hv.SourceBlock, Format: Raw, Path: "/dev/no-such-device"}}
		for range 2 {
			ok(t, b.hv.SetConfigChain(t.Context(), id, "vda", chain))
		}
		after := b.read(t, id)
		if diff := cmp.Diff(before.Live, after.Live); diff != "" {
			t.Errorf("active %v: the live disks changed (-before +after):\n%s", active, diff)
		}
		want, got := before.ConfigDisk("vda"), after.ConfigDisk("vda")
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(hv.Disk{}, "Chain", "Terminated")); diff != "" {
			t.Errorf("active %v: more than the chain changed (-before +after):\n%s", active, diff)
		}
		if diff := cmp.Diff(chain, got.Chain); diff != "" || !got.Terminated {
			t.Errorf("active %v: terminated %v, chain (-want +got):\n%s", active, got.Terminated, diff)
		}
		if diff := cmp.Diff(bystanders(before.Config), bystanders(after.Config)); diff != "" {
			t.Errorf("active %v: other disks changed (-before +after):\n%s", active, diff)
		}
	}
}

func testSetConfigChainSecret(t *testing.T, b *bench) {
	src := b.image(t, "src.raw", Raw)
	id := b.define(t, nil, src)
	before := b.read(t, id)
	container := hv.Image{Type: hv.SourceBlock, Format: Raw, Path: "/dev/no-such-device", LUKSSecret: id}
	ok(t, b.hv.SetConfigChain(t.Context(), id, "vda", []hv.Image{container}))
	if d := b.read(t, id).ConfigDisk("vda"); d.Top() != container || !d.IsLUKS() || d.Encrypted || d.Uncarried != "" {
		t.Errorf("the disk is %+v, want it on %+v alone", d, container)
	}
	ok(t, b.hv.SetConfigChain(t.Context(), id, "vda", []hv.Image{src}))
	if diff := cmp.Diff(before.Config, b.read(t, id).Config, cmpopts.IgnoreFields(hv.Disk{}, "Terminated")); diff != "" {
		t.Errorf("there and back (-before +after):\n%s", diff)
	}
}

func testSetConfigChainRefuses(t *testing.T, b *bench) {
	src := b.image(t, "src.raw", Raw)
	id := b.define(t, nil, src)
	for _, chain := range [][]hv.Image{
		{},
		{{Type: hv.SourceFile, Path: src.Path}},
		{{Type: hv.SourceFile, Format: Raw}},
		{{Type: "network", Format: Raw, Path: "pool/name"}},
	} {
		if err := b.hv.SetConfigChain(t.Context(), id, "vda", chain); err == nil {
			t.Errorf("SetConfigChain(%+v) = nil, want an error", chain)
		}
	}
	if got := b.read(t, id).ConfigDisk("vda").Top(); got != src {
		t.Errorf("a refused call changed the definition to %+v", got)
	}
}

// The definition takes precedence over the overlay's header: a change of the header alone has no
// effect.
func testStartUsesConfigChain(t *testing.T, b *bench) {
	first, second := b.image(t, "first.raw", Raw), b.image(t, "second.raw", Raw)
	b.WriteImage(t, first, 0, 1)
	b.WriteImage(t, second, 0, 7)
	overlay := b.overlay(t, first)
	id := b.define(t, nil, first)
	ok(t, b.hv.SetConfigChain(t.Context(), id, "vda", []hv.Image{overlay, second}))
	b.Start(t, id)
	g := &guest{bench: b, id: id, src: second}
	g.wantLive(t, overlay, second)
	g.CheckGuest(t, id, "vda", 0, 7)
}
