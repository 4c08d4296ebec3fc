// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestDiskOfAGuestWithSnapshotsIsRefused(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw), h.diskIn(t, a, api.FormatQcow2))
	t.Run("inside the image", func(t *testing.T) {
		path := g.disks[1].Path
		tool(t, "qemu-img", "snapshot", "-c", "before-upgrade", path)
		e := g.refusesToMove(t, "vdb", api.CodeUnsupportedDisk, "--to-pool", "b")
		mustContain(t, e.Message, "qemu-img snapshot -d NAME "+path)
		tool(t, "qemu-img", "snapshot", "-d", "before-upgrade", path)
	})
	t.Run("in libvirt, of the other disk", func(t *testing.T) {
		domain := h.virsh(t, "dumpxml", g.Name, "--inactive")
		file := filepath.Join(a, "snapshot.xml")
		xml := "<domainsnapshot><name>before-upgrade</name><creationTime>1</creationTime><state>disk-snapshot</state>" +
			"<disks><disk name='vda' snapshot='no'/><disk name='vdb' snapshot='external'><source file='" + g.disks[1].Path + ".top'/></disk></disks>" + domain + "</domainsnapshot>"
		if err := os.WriteFile(file, []byte(xml), 0o600); err != nil {
			t.Fatal(err)
		}
		h.virsh(t, "snapshot-create", g.Name, file, "--redefine")
		e := g.refusesToMove(t, "vda", api.CodeUnsupportedDisk, "--to-pool", "b")
		mustContain(t, e.Message, "virsh snapshot-delete "+g.Name+" NAME", "--metadata")
		h.virsh(t, "snapshot-delete", g.Name, "before-upgrade", "--metadata")
	})
	g.migrate(t, "vda", "--to-pool", "b")
	v := g.start(t, "vdb", "--to-pool", "b")
	v.copy(t)
	v.complete(t)
	g.assertSettled(t)
}

func TestCDROMIsASlotAndNoVolume(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.defineGuest(t, h.diskIn(t, a, api.FormatRaw))
	iso := filepath.Join(a, "install.iso")
	if err := os.WriteFile(iso, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	h.virsh(t, "attach-disk", g.Name, iso, "hdc", "--type", "cdrom", "--mode", "readonly", "--targetbus", "ide", "--config")
	g.slots = g.persistentSlots(t)
	g.adopt(t)
	var cdrom *api.BlockDeviceMapping
	for i, slot := range g.instance.BlockDeviceMappings {
		if slot.Device == "hdc" {
			cdrom = &g.instance.BlockDeviceMappings[i]
		}
	}
	if cdrom == nil || cdrom.VolumeID != nil || cdrom.AttachmentID != nil {
		t.Fatalf("block device mappings: %+v, want hdc without a volume", g.instance.BlockDeviceMappings)
	}
	mustContain(t, cdrom.Note, "cdrom")
	h.refuses(t, api.CodeNotFound, "volume", "show", g.volumeName("hdc"))
	t.Run("the disk beside it moves", func(t *testing.T) {
		leftToTestE2E(t)
		g.migrate(t, "vda", "--to-pool", "b")
	})
	g.assertSettled(t)
}

// libvirt puts no overlay on a disk that others may be writing to.
func TestShareableDiskIsMirroredWhileItsGuestRuns(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	d := h.diskIn(t, a, api.FormatRaw)
	d.Shareable = true
	g := h.runningGuest(t, d)
	e := h.refuses(t, api.CodeUnsupportedDisk, "migration", "start", g.attachment(t, "vda").ID, "--to-pool", "b")
	mustContain(t, e.Message, g.Name, "shareable", "volume migrate")
	h.refuses(t, api.CodeUnsupportedDisk, "volume", "migrate", g.volumeName("vda"), "--to-pool", "b", "--method", "overlay")
	for _, pool := range []string{"b", "a"} {
		if m := g.migrate(t, "vda", "--to-pool", pool); m.Method != "mirror" {
			t.Errorf("a shareable disk was moved by %s", m.Method)
		}
		g.writes(t)
		g.assertSettledAndGoOn(t)
	}

	g.powerOff(t)
	v := g.start(t, "vda", "--to-pool", "b")
	_, err := h.Libvirtd.Virsh(t.Context(), "start", g.Name)
	if err == nil {
		t.Fatal("the guest started while its disk was being moved")
	}
	mustContain(t, err.Error(), "volferry: ", g.volumeName("vda"), v.ID)
	v.copy(t)
	v.complete(t)
	g.boot(t)
	g.assertSettled(t)

	v = g.start(t, "vda", "--to-pool", "a")
	v.cancel(t)
	g.assertSettled(t)
	if err := g.Start(t.Context()); err != nil {
		t.Errorf("after a cancel: %v", err)
	}
	g.destroy(t)
}

func TestDomainThatIsNotOursToTouchIsRefused(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))

	t.Run("a block job of somebody else", func(t *testing.T) {
		h.virsh(t, "blockcopy", g.Name, "vda", filepath.Join(a, "theirs.raw"), "--format", "raw", "--transient-job", "--bandwidth", "1")
		before := g.volume(t, "vda")
		e := h.refuses(t, api.CodeInstanceBusy, "volume", "migrate", before.ID, "--to-pool", "b")
		mustContain(t, e.Message, "virsh blockjob "+g.Name+" vda", "--abort")
		h.virsh(t, "blockjob", g.Name, "vda", "--abort")
	})
	t.Run("a managed save", func(t *testing.T) {
		g.quiesce(t)
		h.virsh(t, "managedsave", g.Name)
		e := g.refusesToMove(t, "vda", api.CodeStateForbidden, "--to-pool", "b")
		mustContain(t, e.Message, g.Name, "managed save")
		h.virsh(t, "managedsave-remove", g.Name)
	})
	g.assertSettled(t)
}
