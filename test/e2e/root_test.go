// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// The root volume of a guest goes, another one comes into its place, and the first
// one comes back. Each is the guest's vda, with the same address, serial and place in
// the order of booting.
func TestRootVolumeOfAStoppedInstanceIsChangedForAnotherAndBack(t *testing.T) {
	leftToTestE2E(t)
	h := startHost(t)
	g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw), h.diskIn(t, h.poolA, api.FormatRaw))
	before := g.rootVolume(t)
	after := h.adoptVolume(t, h.diskIn(t, h.poolB, api.FormatRaw))

	g.detachRoot(t, before)
	g.cannotStart(t)
	h.KillDaemon()
	g.refusedByTheHook(t)
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.cannotStart(t)

	h.refuses(t, api.CodeRootAttachForbidden, "volume", "attach", after.name, g.Name, "--device", "vda")
	h.refuses(t, api.CodeInvalidArgument, "volume", "attach", after.name, g.Name, "--root", "--device", "vdc")
	g.attachRoot(t, after)
	g.runsOn(t, after)
	h.refuses(t, api.CodeRootDetachForbidden, "volume", "detach", after.name, g.Name)
	g.pause(t)
	h.refuses(t, api.CodeRootDetachForbidden, "volume", "detach", after.name, g.Name, "--force")
	g.resume(t)
	before.assertUntouched(t)

	// The registry has not heard yet that it is off.
	g.quiesce(t)
	g.powerOff(t)
	g.detachRoot(t, after)
	g.assertHolds(t, "vda", after.show(t).Location)
	g.attachRoot(t, before)
	g.runsOn(t, before)
	g.assertSettled(t)
}

func TestTheRootVolumeThatMovesIsNeitherDetachedNorChangedForAnother(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw), h.diskIn(t, a, api.FormatRaw))
	root, other := g.rootVolume(t), h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	slots := g.persistentSlots(t)
	refused := func() {
		t.Helper()
		h.refuses(t, api.CodeMigrationActive, "volume", "detach", root.name, g.Name)
		h.refuses(t, api.CodeMigrationActive, "volume", "detach", root.name, g.Name, "--force")
		h.mustFail(t, "volume", "attach", other.name, g.Name, "--root")
		if diff := cmp.Diff(slots, g.persistentSlots(t)); diff != "" {
			t.Errorf("disks of guest %s changed (-before +after):\n%s", g.Name, diff)
		}
	}
	refused()
	v.copy(t)
	refused()
	v.finish(t)
	g.boot(t)
	g.assertSettled(t)
}

// What the firmware boots is on the root volume, and says which one it is.
func TestInstanceBootsFromTheRootVolumeThatItHasNow(t *testing.T) {
	h := sharedHost(t)
	first, second := h.bootDisk(t, "first"), h.bootDisk(t, "second")
	g := h.defineGuestLike(t, lab.GuestConfig{Machine: "q35", UEFI: true, Disks: []lab.Disk{first}})
	g.adopt(t)
	before, after := g.rootVolume(t), h.adoptVolume(t, second)
	g.bootsFrom(t, "first")
	g.detachRoot(t, before)
	g.cannotStart(t)
	g.attachRoot(t, after)
	g.bootsFrom(t, "second")
	g.detachRoot(t, after)
	g.attachRoot(t, before)
	g.bootsFrom(t, "first")
	g.assertAtRest(t)
	g.settled = true // it has no writer on what it boots from
}

// bootDisk is a disk that a guest boots from, and says so.
func (h *host) bootDisk(t *testing.T, name string) lab.Disk {
	t.Helper()
	n := h.number()
	d := lab.Disk{
		Volume: lab.Volume{Path: filepath.Join(h.poolA, fmt.Sprintf("boot-%d.raw", n)), Format: "raw"}, Serial: fmt.Sprintf("serial-%d", n), Seed: uint64(n),
	}
	if err := lab.MakeBootVolume(t.Context(), d.Volume, lab.BootVolumeBytes, name); err != nil {
		t.Fatal(err)
	}
	return d
}

// bootsFrom starts the instance, claims that it boots from this volume, and stops
// it again. The registry has perhaps not heard of that when it returns.
func (g *guest) bootsFrom(t *testing.T, want string) {
	t.Helper()
	g.host.ctl(t, "instance", "start", g.Name)
	got, err := g.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("guest %s booted from %q, want %q", g.Name, got, want)
	}
	g.host.ctl(t, "instance", "stop", g.Name)
	if state := g.state(t); state != "shut off" {
		t.Errorf("the guest was stopped and is %s", state)
	}
}

// rootVolume is what adoption made of the guest's first disk, which nobody has
// written to.
func (g *guest) rootVolume(t *testing.T) *volume {
	t.Helper()
	return &volume{host: g.host, disk: g.disks[0], name: g.volumeName("vda"), id: g.volume(t, "vda").ID}
}

// detachRoot detaches the root volume.
func (g *guest) detachRoot(t *testing.T, v *volume) {
	t.Helper()
	g.host.ctl(t, "volume", "detach", v.name, g.Name)
	g.assertRootDetached(t, v)
}

// assertRootDetached claims that the root volume is free. All but it is as it was,
// and its slot stays.
func (g *guest) assertRootDetached(t *testing.T, v *volume) {
	t.Helper()
	want := slices.DeleteFunc(slices.Clone(g.slots), func(s slot) bool { return s.Target == "vda" })
	if diff := cmp.Diff(want, g.persistentSlots(t), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("disks of guest %s (-want +got):\n%s", g.Name, diff)
	}
	if at := v.show(t); at.Status != api.VolumeAvailable || len(at.Attachments) != 0 {
		t.Errorf("the volume is not free: %+v", at)
	}
	if s := g.rootSlot(t); s.Device != "vda" || s.VolumeID != nil || s.AttachmentID != nil || s.Slot == nil {
		t.Errorf("the slot that the instance boots from: %+v", s)
	}
}

// rootSlot is the slot that the instance boots from.
func (g *guest) rootSlot(t *testing.T) api.BlockDeviceMapping {
	t.Helper()
	slots := get[api.Instance](t, g.host, "instance", "instance", "show", g.Name).BlockDeviceMappings
	i := slices.IndexFunc(slots, func(s api.BlockDeviceMapping) bool { return s.BootIndex != nil && *s.BootIndex == 0 })
	if i < 0 {
		t.Fatalf("instance %s boots from none of %+v", g.Name, slots)
	}
	return slots[i]
}

// withoutRoot is what everybody reads who starts an instance without its root.
const withoutRoot = "without a root device volume"

// cannotStart claims that the instance is started neither by us nor by virsh.
func (g *guest) cannotStart(t *testing.T) {
	t.Helper()
	mustContain(t, g.host.refuses(t, api.CodeRootVolumeMissing, "instance", "start", g.Name).Message, withoutRoot)
	g.refusedByTheHook(t)
}

func (g *guest) refusedByTheHook(t *testing.T) {
	t.Helper()
	if err := g.Start(t.Context()); err == nil || !strings.Contains(err.Error(), withoutRoot) {
		t.Fatalf("virsh start without a root volume: %v", err)
	}
	if state := g.state(t); state != "shut off" {
		t.Errorf("the guest is %s", state)
	}
}

// attachRoot attaches a volume as the root.
func (g *guest) attachRoot(t *testing.T, v *volume) {
	t.Helper()
	a := get[api.Attachment](t, g.host, "attachment", "volume", "attach", v.name, g.Name, "--root")
	g.assertRootAttached(t, v, a)
}

// assertRootAttached claims that the attachment is of the instance's root volume,
// which is in the place of the one before.
func (g *guest) assertRootAttached(t *testing.T, v *volume, a api.Attachment) {
	t.Helper()
	if a.State != api.AttachmentAttached || a.Device != "vda" || a.BootIndex == nil || *a.BootIndex != 0 {
		t.Fatalf("attach ended as %+v", a)
	}
	want := slices.Clone(g.slots)
	want[0].Source, want[0].Format = v.disk.Path, v.disk.Format
	if diff := cmp.Diff(want, g.persistentSlots(t)); diff != "" {
		t.Errorf("disks of guest %s (-want +got):\n%s", g.Name, diff)
	}
	if s := g.rootSlot(t); s.VolumeID == nil || *s.VolumeID != v.id {
		t.Errorf("the slot that the instance boots from: %+v", s)
	}
	g.slots = want
	g.assertNoLeftovers(t, "shut off")
}

// runsOn starts the instance and claims that the guest's first disk is this volume,
// which nobody has written to: every write of the guest is known from now on.
func (g *guest) runsOn(t *testing.T, v *volume) {
	t.Helper()
	g.host.ctl(t, "instance", "start", g.Name)
	g.seesItsDisks(t)
	if err := g.AddDisk(t.Context(), "vda", v.disk); err != nil {
		t.Fatal(err)
	}
	g.write(t)
	if modes := g.openModes(t, v.disk.Path); !slices.Contains(modes, "write") {
		t.Errorf("QEMU has the new root open for %v", modes)
	}
}
