// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestDiskOfAGuestWithSnapshotsIsRefused(t *testing.T) {
	h, a, _ := twoPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatQcow2))
	h.virsh(t, "snapshot-create-as", g.Name, "before-upgrade")
	e := g.refusesToMove(t, "vda", api.CodeUnsupportedDisk, "--to-pool", "b")
	mustContain(t, e.Message, g.Name, "snapshot")
	h.virsh(t, "snapshot-delete", g.Name, "before-upgrade")
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
}

func TestCDROMIsASlotAndNoVolume(t *testing.T) {
	h, a, _ := twoPools(t)
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
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
}

// libvirt puts no overlay on a disk that others may be writing to.
func TestShareableDiskMovesOnlyWhileItsGuestIsKeptStopped(t *testing.T) {
	h, a, _ := twoPools(t)
	d := h.diskIn(t, a, api.FormatRaw)
	d.Shareable = true
	g := h.runningGuest(t, d)
	e := g.refusesToMove(t, "vda", api.CodeUnsupportedDisk, "--to-pool", "b")
	mustContain(t, e.Message, g.Name, "shareable", "stop the instance")
	g.writes(t)

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
	h, a, _ := twoPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))

	t.Run("a block job of somebody else", func(t *testing.T) {
		h.virsh(t, "blockcopy", g.Name, "vda", filepath.Join(a, "theirs.raw"), "--format", "raw", "--transient-job", "--bandwidth", "1")
		before := g.volume(t, "vda")
		e := h.refuses(t, api.CodeInstanceBusy, "volume", "migrate", before.ID, "--to-pool", "b")
		mustContain(t, e.Message, g.Name, "block job")
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
