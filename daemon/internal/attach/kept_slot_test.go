// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// The root's address is the next free one.
func TestADataVolumeLeavesThePlaceOfARootThatIsAway(t *testing.T) {
	withRoot(t, false, func(t *testing.T, d *daemon) {
		slot := d.world.registry.root.slot
		must(t, failed(d.attach("data", api.VolumeAttach{Instance: "web"})))
		if got := d.configDisk(t, "vdc"); got == nil || got.Address == rootAddress {
			t.Fatalf("the data volume is %+v", got)
		}
		if diff := cmp.Diff(slot, d.world.registry.root.slot); diff != "" {
			t.Errorf("the slot of the root (-before +after)\n%s", diff)
		}
		d.takesItsPlace(t, slot)
	})
}

// The volume may be the previous root: it keeps its own settings, but not the root's address.
func TestAVolumeThatWasTheRootLeavesItsPlace(t *testing.T) {
	withRoot(t, true, func(t *testing.T, d *daemon) {
		must(t, failed(d.detach("d", web)))
		slot := d.world.registry.root.slot
		must(t, failed(d.attach("data", api.VolumeAttach{Instance: "web"})))
		want, got := d.world.rootDisk(), d.configDisk(t, "vdc")
		if got == nil || got.Address == rootAddress {
			t.Fatalf("the data volume is %+v", got)
		}
		want.Target, want.Address, want.BootOrder = "vdc", got.Address, 0
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("the data volume (-want +got)\n%s", diff)
		}
		d.takesItsPlace(t, slot)
	})
}

// The registry still has the root when the data volume is attached: it did not answer at the root's
// detach.
func TestADataVolumeLeavesThePlaceOfARootWhoseReleaseIsQueued(t *testing.T) {
	withRoot(t, false, func(t *testing.T, d *daemon) {
		g, _ := d.Now()
		slot := d.world.registry.root.slot
		queued := d.world.rootInput()
		d.world.registry.root.slot = nil
		elsewhere := queued
		elsewhere.InstanceID, elsewhere.Slot = db, &api.SlotDefinition{Disk: "not read"}
		g.env.runner = queuedReleases{[]input{elsewhere, queued}}
		must(t, failed(d.attach("data", api.VolumeAttach{Instance: "web", Device: "vdd"})))
		d.takesItsPlace(t, slot)
	})
}

// queuedReleases is a runner that has only releases which wait for the registry.
type queuedReleases struct{ of []input }

func (queuedReleases) Submit(context.Context, op.Op) error { return errors.New("nothing is to follow") }

func (q queuedReleases) Active() []op.Status {
	var active []op.Status
	for i := range q.of {
		data, err := json.Marshal(q.of[i])
		if err != nil {
			panic(err)
		}
		active = append(active, op.Status{Op: op.Op{Kind: kindRelease, Input: data}})
	}
	return active
}

// The root is detached after the attach was decided, and before its turn.
func TestADataVolumeLeavesThePlaceOfARootThatGoesWhileItWaits(t *testing.T) {
	withRoot(t, false, func(t *testing.T, d *daemon) {
		slot := d.world.registry.root.slot
		d.world.registry.root.slot = nil
		d.world.journal.AfterAppend(func(r op.Record) {
			if r.Step == stepNameAttachConfig && r.Kind == op.EventStarted {
				d.world.registry.root.slot = slot
			}
		})
		must(t, failed(d.attach("data", api.VolumeAttach{Instance: "web"})))
		d.takesItsPlace(t, slot)
	})
}

// takesItsPlace checks that the disk of a slot can be restored unchanged.
func (d *daemon) takesItsPlace(t *testing.T, slot *api.SlotDefinition) {
	t.Helper()
	w := d.world
	must(t, w.CreateImage("/roots/other.raw", hvtest.Raw, testSize))
	must(t, w.Fake.AttachDisk(t.Context(), web, hv.Config, hv.DiskSpec{
		Target: "vda", Slot: slot.Disk, Image: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/roots/other.raw"},
	}))
	if got := d.configDisk(t, "vda"); got.Address != rootAddress {
		t.Errorf("the root is at %s, was at %s", got.Address, rootAddress)
	}
}

// configDisk returns a disk in the definition of instance web, nil if there is none.
func (d *daemon) configDisk(t *testing.T, target string) *hv.Disk {
	t.Helper()
	dom, err := d.world.Fake.Domain(t.Context(), web)
	must(t, err)
	return dom.ConfigDisk(target)
}

func TestADataVolumeDoesNotComeBeforeARootThatIsFirstOfTheDisks(t *testing.T) {
	root := func(target, bus string, order int) *hv.Disk {
		return &hv.Disk{Target: target, Bus: bus, BootOrder: order}
	}
	for name, c := range map[string]struct {
		asked string
		root  *hv.Disk
		want  string
		code  api.Code
	}{
		"the next free one":          {root: root("vdc", "virtio", 0), want: "vdd"},
		"one before it":              {asked: "vdb", root: root("vdc", "virtio", 0), code: api.CodeConflict},
		"one behind it":              {asked: "vdaa", root: root("vdc", "virtio", 0), want: "vdaa"},
		"one before a longer name":   {asked: "vdz", root: root("vdaa", "virtio", 0), code: api.CodeConflict},
		"a root with a number":       {root: root("vdc", "virtio", 1), want: "vda"},
		"a root on another bus":      {root: root("sdc", "scsi", 0), want: "vda"},
		"no root that is away":       {want: "vda"},
		"nothing free but before it": {asked: "vda", root: root("vdc", "virtio", 0), code: api.CodeConflict},
	} {
		inst := api.Instance{Name: "web"}
		if c.root != nil {
			inst.BlockDeviceMappings = []api.BlockDeviceMapping{{Device: c.root.Target, BootIndex: new(int)}}
		}
		got, err := chooseDevice(c.asked, &hv.Domain{State: hv.StateStopped}, inst, c.root)
		if got != c.want || api.CodeOf(err) != c.code {
			t.Errorf("%s: %q, %v, want %q %s", name, got, err, c.want, c.code)
		}
	}
}

// The PC's IDE bus has a drive with the same numbers.
func TestARootOnASCSIBusDoesNotStandInTheWayOfADriveElsewhere(t *testing.T) {
	const place = "drive:0:0:0:0"
	withRoot(t, false, func(t *testing.T, d *daemon) {
		def, err := json.Marshal(hv.Disk{Target: "hda", Bus: "ide", Device: "cdrom", Address: place})
		must(t, err)
		must(t, d.world.Fake.AttachDisk(t.Context(), web, hv.Config, hv.DiskSpec{Target: "hda", Definition: string(def)}))
		must(t, failed(d.attach("a", attachAsRoot)))
		if got := d.root(t); got == nil || got.Address != place {
			t.Errorf("the root is %+v", got)
		}
	}, func(disk *hv.Disk) { disk.Bus, disk.Address = "scsi", place })
}
