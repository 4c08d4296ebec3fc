// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/internal/api"
)

// rootAddress is the first free address while the root is detached.
const rootAddress = "pci:0000:00:05.0"

// rootDisk returns the volume's disk while instance web boots from it.
func (w *world) rootDisk() hv.Disk {
	return hv.Disk{
		Target: "vda", Bus: "virtio", Device: "disk", Serial: testVolume, Address: rootAddress, BootOrder: 1, Terminated: true,
		Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: volPath}}, Cache: "writeback", ErrorPolicy: "stop",
	}
}

// newRootWorld returns a world with an instance web that is off. It boots from the volume, or has
// lost its root and has another bootable disk.
func newRootWorld(t *testing.T, has bool, edit ...func(*hv.Disk)) *world {
	t.Helper()
	w := newWorld(t)
	ctx := t.Context()
	must(t, w.Fake.DetachDisk(ctx, web, hv.Config, "vda"))
	must(t, w.CreateImage("/data/web.raw", hvtest.Raw, testSize))
	must(t, w.Fake.AttachDisk(ctx, web, hv.Config, hv.DiskSpec{
		Target: "vdb", Bus: "virtio", Image: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/data/web.raw"},
	}))
	disk := w.rootDisk()
	for _, f := range edit {
		f(&disk)
	}
	def, err := json.Marshal(disk)
	must(t, err)
	w.registry.root = &rootSlotRow{device: "vda", slot: &api.SlotDefinition{Disk: string(def), SerialOfVolume: disk.Serial == testVolume}}
	w.registry.reported[web] = hv.StateStopped
	if !has {
		must(t, w.guards.Set(web, guard.OwnerRoot, "no root"))
		return w
	}
	must(t, w.Fake.AttachDisk(ctx, web, hv.Config, hv.DiskSpec{Target: "vda", Definition: string(def)}))
	in := w.rootInput()
	w.registry.rows[testAtt] = in.attachment(api.AttachmentAttached)
	w.registry.root.slot = nil
	return w
}

// rootInput returns the input of an op for the volume as the root of instance web.
func (w *world) rootInput() input {
	in := w.input(testAtt, web)
	in.Device, in.BootIndex, in.Root, in.Slot = "vda", new(int), true, w.registry.root.slot
	return in
}

// lookAtRoot reports an instance web that runs without its root, or could be started without it.
func (w *world) lookAtRoot(dom *hv.Domain) {
	if w.registry.root == nil || dom.ID != web {
		return
	}
	d := dom.ConfigDisk("vda")
	switch {
	case dom.State.Active() && dom.LiveDisk("vda") == nil:
		w.Moments.Wrong("web runs without its root")
	case !dom.State.Active() && (d == nil || d.Top().Path != volPath) && w.guarded() == "":
		w.Moments.Wrong("web could be started without its root")
	}
}

// guarded returns why instance web may not be started without a root, "" if it may.
func (w *world) guarded() string {
	all, err := w.guardPort.Of(web)
	if err != nil {
		return err.Error()
	}
	for _, g := range all {
		if g.Owner == guard.OwnerRoot {
			return g.Reason
		}
	}
	return ""
}

// rootSettled returns the faults of the root slot while no op runs.
func (w *world) rootSettled(dom *hv.Domain) error {
	has := false
	for _, a := range w.registry.all() {
		has = has || a.Device == "vda" && a.State == api.AttachmentAttached
	}
	d, guard := dom.ConfigDisk("vda"), w.guarded()
	switch {
	case has && guard != "":
		return errors.New("web has its root and is guarded: " + guard)
	case has != (d != nil):
		return fmt.Errorf("web has its root by the registry: %t, by its definition: %t", has, d != nil)
	case !has && w.registry.root.slot == nil:
		return errors.New("nothing is known of the empty slot")
	case has && !api.IsRoot(instance.BootIndexes(dom.Config)["vda"]):
		return errors.New("web boots from something else")
	case has && d.Address != rootAddress:
		return fmt.Errorf("web has its root at %s", d.Address)
	}
	return nil
}

// rootSlotRow is the registry's root slot of instance web.
type rootSlotRow struct {
	device string
	note   string
	slot   *api.SlotDefinition // while the slot is empty
}

func (s *rootSlotRow) mappings(rows map[string]api.Attachment) []api.BlockDeviceMapping {
	b := api.BlockDeviceMapping{Device: s.device, BootIndex: new(int), Note: s.note, Slot: s.slot}
	for _, a := range rows {
		if a.InstanceID == web && a.Device == s.device {
			b.VolumeID, b.AttachmentID, b.Slot = &a.VolumeID, &a.ID, nil
		}
	}
	return []api.BlockDeviceMapping{b}
}

// isRoot reports whether a device is a root slot. The caller holds mu.
func (r *fakeRegistry) isRoot(instanceID, device string) bool {
	return r.root != nil && instanceID == web && device == r.root.device
}

// hear takes a report of the host: without one the registry does not know the present states of its
// instances.
func (r *fakeRegistry) hear(ctx context.Context) {
	_, _ = ask(r, func() (struct{}, error) {
		doms, err := r.world.Fake.Domains(ctx)
		for i := range doms {
			r.reported[doms[i].ID] = doms[i].State
		}
		return struct{}{}, err
	})
}
