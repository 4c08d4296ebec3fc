// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var attachTests = map[string]func(*testing.T, *bench){
	"AttachedDiskIsThereAndCanBeWritten":               testAttachLive,
	"AttachToTheDefinitionWaitsForTheNextStart":        testAttachConfig,
	"AttachSaysWhyNot":                                 testAttachRefuses,
	"ADefinitionGivesTheOtherTheSameDisk":              testSameDisk,
	"DescriptionsChooseAddressesOnTheirOwn":            testAddresses,
	"ADiskThatIsAwayKeepsItsPlace":                     testReserved,
	"ADiskIsPutBackExactlyAsItWas":                     testPutBack,
	"TwoDomainsShareAnImageOnlyIfEveryWriterMay":       testSharing,
	"ASharedImageStaysOpenForWhoeverHasItStill":        testSharedLeave,
	"ACopyOfADiskThatCannotHaveAnOverlayKeepsItsModes": testPivotKeeps,
}

func testAttachLive(t *testing.T, b *bench) {
	for _, paused := range []bool{false, true} {
		g := b.start(t)
		if paused {
			ok(t, g.hv.Suspend(t.Context(), g.id))
		}
		before := g.domain(t)
		spec := g.spec(t, "vdc")
		g.attach(t, g.id, hv.Live, spec)
		after := g.domain(t)
		got := after.LiveDisk("vdc")
		if got == nil {
			t.Fatalf("paused %v: the disk is not there", paused)
		}
		want := &hv.Disk{
			Target: "vdc", Bus: "virtio", Device: "disk", Serial: spec.Serial, Address: got.Address,
			Chain: []hv.Image{spec.Image}, Terminated: true, Cache: "none", Discard: "unmap",
		}
		if diff := cmp.Diff(want, got); diff != "" || got.Address == "" {
			t.Errorf("paused %v: address %q, disk (-want +got):\n%s", paused, got.Address, diff)
		}
		if g.process(t, g.id, "vdc").Kept || !g.process(t, g.id, "vda").Kept {
			t.Errorf("the process was started with vdc, or not with vda")
		}
		if after.State != before.State {
			t.Errorf("the domain went from %s to %s", before.State, after.State)
		}
		if diff := cmp.Diff(before.Config, after.Config); diff != "" {
			t.Errorf("paused %v: the definition changed (-before +after):\n%s", paused, diff)
		}
		ok(t, g.hv.Resume(t.Context(), g.id))
		g.GuestWrite(t, g.id, "vdc", 3, 4)
		g.Destroy(t, g.id)
		g.CheckImage(t, spec.Image, 3, 4)
		if g.domain(t).ConfigDisk("vdc") != nil {
			t.Error("a live disk got into the definition")
		}
	}
}

func testAttachConfig(t *testing.T, b *bench) {
	for _, active := range []bool{false, true} {
		id := b.define(t, nil, b.image(t, "src.raw", Raw))
		if active {
			b.Start(t, id)
		}
		before := b.read(t, id)
		spec := b.spec(t, "vdc")
		spec.ReadOnly, spec.Shareable = true, true
		b.attach(t, id, hv.Config, spec)
		after := b.read(t, id)
		if diff := cmp.Diff(before.Live, after.Live); diff != "" {
			t.Errorf("active %v: the live disks changed (-before +after):\n%s", active, diff)
		}
		if active {
			b.Destroy(t, id)
		}
		b.Start(t, id)
		d := b.read(t, id)
		if diff := cmp.Diff(d.ConfigDisk("vdc"), d.LiveDisk("vdc")); diff != "" || d.LiveDisk("vdc") == nil {
			t.Errorf("active %v: started with (-definition +live):\n%s", active, diff)
		}
		if got := d.LiveDisk("vdc"); !got.ReadOnly || !got.Shareable {
			t.Errorf("disk = %+v, want it read-only and shareable", got)
		}
	}
}

func testAttachRefuses(t *testing.T, b *bench) {
	g := b.start(t)
	off := b.define(t, nil, b.image(t, "off.raw", Raw))
	spec, taken := b.spec(t, "vdc"), b.spec(t, "vda")
	shared := hv.DiskSpec{
		Target: "vdc", Bus: "virtio", Shareable: true, Image: b.image(t, "shared.qcow2", Qcow2),
	}
	missing := hv.DiskSpec{Target: "vdc", Bus: "virtio", Image: spec.Image}
	missing.Image.Path += "-not"
	unnamed := hv.DiskSpec{Target: "vdc", Bus: "virtio", Image: hv.Image{Type: "network", Format: Raw}}
	second := spec
	second.BootOrder = 1
	other := hv.DiskSpec{Target: "vdc", Definition: b.definition(t, g.id, hv.Live, "vdb")}
	for name, c := range map[string]struct {
		id    string
		where hv.Where
		spec  hv.DiskSpec
		want  error
	}{
		"live target taken":         {g.id, hv.Live, taken, hv.ErrExists},
		"config target taken":       {g.id, hv.Config, taken, hv.ErrExists},
		"live of a stopped domain":  {off, hv.Live, spec, hv.ErrNotActive},
		"no domain":                 {uuid.NewString(), hv.Config, spec, hv.ErrNotFound},
		"no such description":       {g.id, "both", spec, hv.ErrUnsupported},
		"live shared qcow2":         {g.id, hv.Live, shared, hv.ErrUnsupported},
		"config shared qcow2":       {g.id, hv.Config, shared, hv.ErrUnsupported},
		"image that is not there":   {g.id, hv.Live, missing, nil},
		"image that is no image":    {g.id, hv.Live, unnamed, hv.ErrUnsupported},
		"definition of another one": {g.id, hv.Live, other, nil},
		"live boot order taken":     {g.id, hv.Live, second, hv.ErrUnsupported},
		"config boot order taken":   {g.id, hv.Config, second, hv.ErrUnsupported},
		"image of another disk":     {g.id, hv.Live, hv.DiskSpec{Target: "vdc", Bus: "virtio", Image: g.src}, hv.ErrInUse},
	} {
		err := b.hv.AttachDisk(t.Context(), c.id, c.where, c.spec)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: AttachDisk = %v, want %v", name, err, c.want)
		}
	}
	for _, id := range []string{g.id, off} {
		if d := b.read(t, id); d.LiveDisk("vdc") != nil || d.ConfigDisk("vdc") != nil {
			t.Errorf("a refused disk is there: %+v", d)
		}
	}
	_, noDisk := b.hv.DiskDefinition(t.Context(), g.id, hv.Config, "vdz")
	_, notActive := b.hv.DiskDefinition(t.Context(), off, hv.Live, "vda")
	if !errors.Is(noDisk, hv.ErrNotFound) || !errors.Is(notActive, hv.ErrNotActive) {
		t.Errorf("DiskDefinition = %v and %v, want ErrNotFound and ErrNotActive", noDisk, notActive)
	}
}

func testSameDisk(t *testing.T, b *bench) {
	for first, second := range map[hv.Where]hv.Where{hv.Live: hv.Config, hv.Config: hv.Live} {
		g := b.start(t)
		spec := g.spec(t, "vdc")
		spec.Shareable = true
		g.attach(t, g.id, first, spec)
		definition := g.definition(t, g.id, first, "vdc")
		g.attach(t, g.id, second, hv.DiskSpec{Target: "vdc", Definition: definition})
		d := g.domain(t)
		if diff := cmp.Diff(d.LiveDisk("vdc"), d.ConfigDisk("vdc")); diff != "" {
			t.Errorf("%s first (-live +definition):\n%s", first, diff)
		}
		before := d.LiveDisk("vdc")
		g.Destroy(t, g.id)
		g.Start(t, g.id)
		if diff := cmp.Diff(before, g.domain(t).LiveDisk("vdc")); diff != "" {
			t.Errorf("%s first, after a start (-before +after):\n%s", first, diff)
		}
	}
}

func testAddresses(t *testing.T, b *bench) {
	g := b.start(t)
	g.attach(t, g.id, hv.Live, g.spec(t, "vdc"))
	spec := g.spec(t, "vdd")
	g.attach(t, g.id, hv.Config, spec)
	same := hv.DiskSpec{Target: "vdd", Definition: g.definition(t, g.id, hv.Config, "vdd")}
	if err := g.hv.AttachDisk(t.Context(), g.id, hv.Live, same); !errors.Is(err, hv.ErrExists) {
		t.Errorf("AttachDisk at an address that is taken = %v, want ErrExists", err)
	}
	ok(t, g.hv.DetachDisk(t.Context(), g.id, hv.Config, "vdd"))
	g.attach(t, g.id, hv.Live, spec)
	same.Definition = g.definition(t, g.id, hv.Live, "vdd")
	g.attach(t, g.id, hv.Config, same)
	d := g.domain(t)
	if diff := cmp.Diff(d.LiveDisk("vdd"), d.ConfigDisk("vdd")); diff != "" {
		t.Errorf("(-live +definition):\n%s", diff)
	}
}

func testReserved(t *testing.T, b *bench) {
	id := b.define(t, nil, b.image(t, "src.raw", Raw))
	before := b.read(t, id).ConfigDisk("vda")
	reserved := []string{b.definition(t, id, hv.Config, "vda")}
	ok(t, b.hv.DetachDisk(t.Context(), id, hv.Config, "vda"))
	for _, target := range []string{"vdc", "vdd"} {
		spec := b.spec(t, target)
		spec.Reserved = reserved
		b.attach(t, id, hv.Config, spec)
	}
	for name, c := range map[string]struct {
		edit func(*hv.DiskSpec)
		want error
	}{
		"its target":     {func(s *hv.DiskSpec) { s.Target = "vda" }, hv.ErrExists},
		"its boot order": {func(s *hv.DiskSpec) { s.BootOrder = before.BootOrder }, hv.ErrUnsupported},
		"all of it":      {func(s *hv.DiskSpec) { s.Target, s.Definition = "vda", reserved[0] }, hv.ErrExists},
	} {
		spec := b.spec(t, "vde")
		spec.Reserved = reserved
		c.edit(&spec)
		if err := b.hv.AttachDisk(t.Context(), id, hv.Config, spec); !errors.Is(err, c.want) {
			t.Errorf("%s: AttachDisk = %v, want %v", name, err, c.want)
		}
	}
	other := b.image(t, "other.raw", Raw)
	b.attach(t, id, hv.Config, hv.DiskSpec{Target: "vda", Slot: reserved[0], Image: other})
	want := *before
	want.Chain = []hv.Image{other}
	if diff := cmp.Diff(&want, b.read(t, id).ConfigDisk("vda")); diff != "" {
		t.Errorf("the disk that came back (-want +got):\n%s", diff)
	}
	b.Start(t, id)
	d := b.read(t, id)
	for _, target := range []string{"vda", "vdc", "vdd"} {
		if diff := cmp.Diff(d.ConfigDisk(target), d.LiveDisk(target)); diff != "" {
			t.Errorf("%s was started as (-definition +live):\n%s", target, diff)
		}
	}
}

func testPutBack(t *testing.T, b *bench) {
	for _, active := range []bool{false, true} {
		id := b.define(t, nil, b.image(t, "src.raw", Raw))
		if active {
			b.Start(t, id)
		}
		before := b.read(t, id)
		definition := b.definition(t, id, hv.Config, "vda")
		for range 2 {
			ok(t, b.hv.DetachDisk(t.Context(), id, hv.Config, "vda"))
		}
		gone := b.read(t, id)
		if gone.ConfigDisk("vda") != nil {
			t.Error("the disk is still in the definition")
		}
		if diff := cmp.Diff(before.Live, gone.Live); diff != "" {
			t.Errorf("active %v: the live disks changed (-before +after):\n%s", active, diff)
		}
		b.attach(t, id, hv.Config, hv.DiskSpec{Target: "vda", Definition: definition})
		if diff := cmp.Diff(before, b.read(t, id)); diff != "" {
			t.Errorf("active %v: put back (-before +after):\n%s", active, diff)
		}
		if again := b.definition(t, id, hv.Config, "vda"); again != definition {
			t.Errorf("definition\n%s\nwas\n%s", again, definition)
		}
	}
}

// testSharing tests that QEMU refuses the second guest if one guest writes and the other does not
// share.
func testSharing(t *testing.T, b *bench) {
	first, second := b.start(t), b.start(t)
	spec := b.spec(t, "vdc")
	modes := []hv.DiskSpec{{}, {Shareable: true}, {ReadOnly: true}, {ReadOnly: true, Shareable: true}}
	for _, one := range modes {
		for _, two := range modes {
			name := fmt.Sprintf("read-only %v, shareable %v and then read-only %v, shareable %v",
				one.ReadOnly, one.Shareable, two.ReadOnly, two.Shareable)
			excluded := !one.ReadOnly && !two.Shareable || !two.ReadOnly && !one.Shareable
			for _, s := range []*hv.DiskSpec{&one, &two} {
				s.Target, s.Bus, s.Image = spec.Target, spec.Bus, spec.Image
			}
			b.attach(t, first.id, hv.Live, one)
			err := b.hv.AttachDisk(t.Context(), second.id, hv.Live, two)
			if excluded && !errors.Is(err, hv.ErrInUse) {
				t.Errorf("%s: AttachDisk = %v, want ErrInUse", name, err)
			}
			if !excluded && err != nil {
				t.Errorf("%s: AttachDisk = %v, want both to have it", name, err)
			}
			if there := second.domain(t).LiveDisk("vdc") != nil; there != (err == nil) {
				t.Errorf("%s: after %v the disk is there: %v", name, err, there)
			}
			second.unplug(t, "vdc")
			first.unplug(t, "vdc")
		}
	}
}

func testSharedLeave(t *testing.T, b *bench) {
	first, second := b.start(t), b.start(t)
	spec := b.spec(t, "vdc")
	spec.Shareable = true
	b.attach(t, first.id, hv.Live, spec)
	b.attach(t, second.id, hv.Live, spec)
	first.unplug(t, "vdc")
	eventually(t, "who let go of it has closed it", func() bool { return first.openFor(t, spec.Image) == "" })
	if how := second.openFor(t, spec.Image); how != "w" {
		t.Errorf("the other has it open for %q, want writing", how)
	}
	b.GuestWrite(t, second.id, "vdc", 1, 5)
	b.attach(t, first.id, hv.Live, spec)
	b.GuestWrite(t, first.id, "vdc", 2, 6)
	b.CheckGuest(t, first.id, "vdc", 1, 5)
	b.CheckGuest(t, second.id, "vdc", 2, 6)
}

func testPivotKeeps(t *testing.T, b *bench) {
	for _, mode := range []hv.DiskSpec{{Shareable: true}, {ReadOnly: true, Shareable: true}, {ReadOnly: true}} {
		src, dst := b.image(t, "src.raw", Raw), b.image(t, "dst.raw", Raw)
		id := b.define(t, func(d *hv.Disk) { d.Shareable, d.ReadOnly = mode.Shareable, mode.ReadOnly }, src)
		b.Start(t, id)
		g := &guest{bench: b, id: id, src: src}
		before := g.domain(t)
		openBefore := g.openFor(t, src)
		ok(t, g.hv.BlockCopy(t.Context(), id, "vda", dst, hv.BlockCopyOptions{Synchronous: true}))
		g.awaitReady(t, hv.JobCopy, dst)
		ok(t, g.hv.Pivot(t.Context(), id, "vda"))
		g.wantKept(t, before, dst)
		if how := g.openFor(t, dst); how != openBefore {
			t.Errorf("read-only %v, shareable %v: dst is open for %q, src was for %q", mode.ReadOnly, mode.Shareable, how, openBefore)
		}
		if how := g.openFor(t, src); how != "" {
			t.Errorf("read-only %v, shareable %v: src is still open for %q", mode.ReadOnly, mode.Shareable, how)
		}
		ok(t, g.hv.SetConfigChain(t.Context(), id, "vda", []hv.Image{src}))
		ok(t, g.hv.SetConfigChain(t.Context(), id, "vda", []hv.Image{dst}))
		g.wantKept(t, before, dst)
		other := b.start(t)
		b.attach(t, other.id, hv.Live, hv.DiskSpec{
			Target: "vdc", Bus: "virtio", Image: dst, Shareable: mode.Shareable, ReadOnly: mode.ReadOnly,
		})
	}
}

func (g *guest) wantKept(t *testing.T, before *hv.Domain, now hv.Image) {
	t.Helper()
	after := g.domain(t)
	for where, disks := range map[hv.Where][2]*hv.Disk{
		hv.Live:   {before.LiveDisk("vda"), after.LiveDisk("vda")},
		hv.Config: {before.ConfigDisk("vda"), after.ConfigDisk("vda")},
	} {
		want := *disks[0]
		want.Chain = []hv.Image{now}
		if diff := cmp.Diff(&want, disks[1]); diff != "" {
			t.Errorf("%s disk after the pivot (-want +got):\n%s", where, diff)
		}
	}
}
