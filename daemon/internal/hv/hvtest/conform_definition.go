// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var definitionTests = map[string]func(*testing.T, *bench){
	"ADefinitionMakesTheDomainAgain":                testRedefine,
	"ADefinitionTakesOtherDisks":                    testRedefineOtherDisks,
	"NoDomainIsReplacedAndNoneIsHalfMade":           testRedefineRefuses,
	"ADefinitionWithAMediumInADriveIsNotPortable":   testMediumInDrive,
	"UndefineLeavesDomainsThatAreActive":            testUndefine,
	"ASlotKeepsWhatTheGuestSeesOfADisk":             testSlot,
	"ASlotOfTheRunningDomainKeepsItsAddress":        testSlotLive,
	"DefinitionsOfWhatIsNotThereAreNotFoundOrNoErr": testDefinitionNotFound,
}

func (b *bench) domainDefinition(t *testing.T, id string) hv.DomainDefinition {
	t.Helper()
	def, err := b.hv.DomainDefinition(t.Context(), id)
	ok(t, err)
	return def
}

func (b *bench) undefine(t *testing.T, id string) {
	t.Helper()
	for range 2 {
		ok(t, b.hv.UndefineDomain(t.Context(), id))
		if _, err := b.hv.Domain(t.Context(), id); !errors.Is(err, hv.ErrNotFound) {
			t.Fatalf("after UndefineDomain: Domain = %v, want ErrNotFound", err)
		}
	}
}

func testRedefine(t *testing.T, b *bench) {
	for _, autostart := range []bool{false, true} {
		src := b.image(t, "src.raw", Raw)
		b.WriteImage(t, src, 0, 1)
		id := b.define(t, nil, src)
		before, def := b.read(t, id), b.domainDefinition(t, id)
		disks := []hv.DiskSpec{
			{Target: "vda", Definition: b.definition(t, id, hv.Config, "vda")},
			{Target: "vdb", Definition: b.definition(t, id, hv.Config, "vdb")},
		}
		b.undefine(t, id)
		def.Autostart, before.Autostart = autostart, autostart
		ok(t, b.hv.DefineDomain(t.Context(), id, def, disks))
		if diff := cmp.Diff(before, b.read(t, id)); diff != "" || before.MemoryBytes != memoryBytes {
			t.Errorf("it has %d bytes of memory; domain (-before +after):\n%s", before.MemoryBytes, diff)
		}
		if diff := cmp.Diff(def, b.domainDefinition(t, id)); diff != "" {
			t.Errorf("definition (-stored +read):\n%s", diff)
		}
		ok(t, b.hv.PowerOn(t.Context(), id))
		b.CheckGuest(t, id, "vda", 0, 1)
	}
}

func testRedefineOtherDisks(t *testing.T, b *bench) {
	id := b.define(t, nil, b.image(t, "src.raw", Raw))
	before, def := b.read(t, id), b.domainDefinition(t, id)
	slot := b.definition(t, id, hv.Config, "vda")
	other, data := b.image(t, "other.raw", Raw), b.spec(t, "vdd")
	b.undefine(t, id)
	ok(t, b.hv.DefineDomain(t.Context(), id, def, []hv.DiskSpec{data, {Target: "vda", Image: other, Slot: slot}}))
	after := b.read(t, id)
	want := before.ConfigDisk("vda")
	want.Chain = []hv.Image{other}
	if diff := cmp.Diff(want, after.ConfigDisk("vda")); diff != "" {
		t.Errorf("vda (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.ConfigDisk("hda"), after.ConfigDisk("hda")); diff != "" {
		t.Errorf("the drive (-before +after):\n%s", diff)
	}
	if d := after.ConfigDisk("vdd"); after.ConfigDisk("vdb") != nil || d == nil || d.Top() != data.Image {
		t.Errorf("disks = %+v", after.Config)
	}

	// The domain is defined without its root disk, so that no disk has a boot order, and then with
	// it.
	b.undefine(t, id)
	ok(t, b.hv.DefineDomain(t.Context(), id, def, []hv.DiskSpec{data}))
	def = b.domainDefinition(t, id)
	b.undefine(t, id)
	ok(t, b.hv.DefineDomain(t.Context(), id, def, []hv.DiskSpec{{Target: "vda", Image: other, Slot: slot}}))
	if diff := cmp.Diff(want, b.read(t, id).ConfigDisk("vda")); diff != "" {
		t.Errorf("vda after it was missing (-want +got):\n%s", diff)
	}
}

func testRedefineRefuses(t *testing.T, b *bench) {
	id := b.define(t, nil, b.image(t, "src.raw", Raw))
	before, def := b.read(t, id), b.domainDefinition(t, id)
	vda := hv.DiskSpec{Target: "vda", Definition: b.definition(t, id, hv.Config, "vda")}
	nobody := uuid.NewString()
	another := def
	another.Domain = strings.ReplaceAll(def.Domain, id, nobody)
	renamed := another
	renamed.Domain = strings.ReplaceAll(another.Domain, before.Name, "renamed-"+before.Name)
	for name, c := range map[string]struct {
		id    string
		def   hv.DomainDefinition
		disks []hv.DiskSpec
		want  error
	}{
		"id is taken":               {id, def, nil, hv.ErrExists},
		"name is taken":             {nobody, another, nil, hv.ErrExists},
		"definition of another id":  {nobody, def, nil, nil},
		"no definition":             {nobody, hv.DomainDefinition{Domain: "<nothing>"}, nil, nil},
		"disk twice":                {nobody, renamed, []hv.DiskSpec{vda, vda}, nil},
		"disk without a good image": {nobody, renamed, []hv.DiskSpec{{Target: "vdc", Bus: "virtio"}}, hv.ErrUnsupported},
		"slot that is no disk": {
			nobody, renamed,
			[]hv.DiskSpec{{Target: "vdc", Slot: "<nothing>", Image: before.ConfigDisk("vda").Top()}},
			nil,
		},
	} {
		err := b.hv.DefineDomain(t.Context(), c.id, c.def, c.disks)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: DefineDomain = %v, want %v", name, err, c.want)
		}
	}
	if _, err := b.hv.Domain(t.Context(), nobody); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("something was defined: Domain = %v", err)
	}
	if diff := cmp.Diff(before, b.read(t, id)); diff != "" {
		t.Errorf("the domain that was there (-before +after):\n%s", diff)
	}
}

func testMediumInDrive(t *testing.T, b *bench) {
	id := uuid.NewString()
	b.Define(t, hv.Domain{ID: id, Name: "conf-" + id[:8], MemoryBytes: memoryBytes, Config: []hv.Disk{{
		Target: "hda", Bus: "ide", Device: "cdrom", ReadOnly: true,
		Chain: []hv.Image{b.image(t, "medium.iso", Raw)}, Terminated: true,
	}}})
	if _, err := b.hv.DomainDefinition(t.Context(), id); !errors.Is(err, hv.ErrUnsupported) || !strings.Contains(err.Error(), "eject") {
		t.Errorf("DomainDefinition = %v, want ErrUnsupported and what to do", err)
	}
}

func testUndefine(t *testing.T, b *bench) {
	g := b.start(t)
	events := b.hv.Events(t.Context())
	if err := b.hv.UndefineDomain(t.Context(), g.id); !errors.Is(err, hv.ErrActive) {
		t.Errorf("UndefineDomain of an active domain = %v, want ErrActive", err)
	}
	if d := g.domain(t); !d.Persistent {
		t.Error("an active domain lost its definition")
	}
	def := b.domainDefinition(t, g.id)
	b.Destroy(t, g.id)
	b.undefine(t, g.id)
	awaitEvent(t, events, hv.Event{Kind: hv.EventLifecycle, DomainID: g.id, Detail: "undefined"})
	b.CheckImage(t, g.src, 0, 1)
	ok(t, b.hv.DefineDomain(t.Context(), g.id, def, nil))
	awaitEvent(t, events, hv.Event{Kind: hv.EventLifecycle, DomainID: g.id, Detail: "defined"})
}

func testSlot(t *testing.T, b *bench) {
	for name, edit := range map[string]func(*hv.DiskSpec, *hv.Disk){
		"as it was": func(*hv.DiskSpec, *hv.Disk) {},
		"another serial": func(spec *hv.DiskSpec, want *hv.Disk) {
			spec.Serial, want.Serial = "another", "another"
		},
		"without its place in the order of booting": func(spec *hv.DiskSpec, want *hv.Disk) {
			spec.NoBootOrder, want.BootOrder = true, 0
		},
		"shared and read-only": func(spec *hv.DiskSpec, want *hv.Disk) {
			spec.ReadOnly, want.ReadOnly = true, true
			spec.Shareable, want.Shareable = true, true
		},
	} {
		id := b.define(t, nil, b.image(t, "src.raw", Raw))
		want := b.read(t, id).ConfigDisk("vda")
		spec := hv.DiskSpec{
			Target: "vda", Bus: "scsi", BootOrder: 9,
			Slot: b.definition(t, id, hv.Config, "vda"), Image: b.image(t, "other.raw", Raw),
		}
		want.Chain = []hv.Image{spec.Image}
		edit(&spec, want)
		ok(t, b.hv.DetachDisk(t.Context(), id, hv.Config, "vda"))
		b.attach(t, id, hv.Config, spec)
		if diff := cmp.Diff(want, b.read(t, id).ConfigDisk("vda")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		b.Start(t, id)
		if diff := cmp.Diff(want, b.read(t, id).LiveDisk("vda")); diff != "" {
			t.Errorf("%s, started (-want +got):\n%s", name, diff)
		}
	}
}

func testSlotLive(t *testing.T, b *bench) {
	g := b.start(t)
	g.attach(t, g.id, hv.Live, g.spec(t, "vdc"))
	g.attach(t, g.id, hv.Live, g.spec(t, "vdd"))
	want := g.domain(t).LiveDisk("vdd")
	slot := g.definition(t, g.id, hv.Live, "vdd")
	g.unplug(t, "vdc")
	g.unplug(t, "vdd")
	spec := hv.DiskSpec{Target: "vdd", Slot: slot, Image: b.image(t, "other.raw", Raw)}
	want.Chain = []hv.Image{spec.Image}
	g.attach(t, g.id, hv.Live, spec)
	if diff := cmp.Diff(want, g.domain(t).LiveDisk("vdd")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	g.GuestWrite(t, g.id, "vdd", 1, 2)
}

func testDefinitionNotFound(t *testing.T, b *bench) {
	nobody := uuid.NewString()
	if _, err := b.hv.DomainDefinition(t.Context(), nobody); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("DomainDefinition = %v, want ErrNotFound", err)
	}
	ok(t, b.hv.UndefineDomain(t.Context(), nobody))
}
