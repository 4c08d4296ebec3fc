// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

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

// readOnlyDisk gives the domain of a guest that was not adopted yet another disk, vdb, which the
// guest may only read. Its serial is a UUID, which is the id of its volume once it was adopted.
func (g *guest) readOnlyDisk(t *testing.T, dir string) *plugged {
	t.Helper()
	d := g.host.diskIn(t, dir, api.FormatRaw)
	d.Serial = uuid.NewString()
	g.host.virsh(t, "attach-disk", g.Name, d.Path, "vdb", "--targetbus", "virtio", "--subdriver", d.Format, "--cache", "none",
		"--mode", "readonly", "--serial", d.Serial, "--config")
	g.slots = g.persistentSlots(t)
	p := &plugged{volume: &volume{host: g.host, disk: d, name: g.volumeName("vdb"), id: d.Serial}, guest: g, mode: api.ModeRO, dev: "vdb"}
	g.plugged = append(g.plugged, p)
	return p
}

// libvirt puts no overlay on a disk that its guest only reads.
func TestReadOnlyDiskThatCameWithItsDomainIsMirroredWhileItsGuestRunsAndStaysReadOnly(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	device := h.device(t, a, volumeBytes)
	g := h.defineGuest(t, h.diskIn(t, a, api.FormatRaw))
	read := g.readOnlyDisk(t, a)
	sum := sumOf(t, read.disk.Path)
	g.boot(t)
	g.adopt(t)
	read.assertAttached(t)

	e := h.refuses(t, api.CodeUnsupportedDisk, "migration", "start", read.show(t).Attachments[0].ID, "--to-pool", "b")
	mustContain(t, e.Message, g.Name, "<readonly/>", "volume migrate")
	h.refuses(t, api.CodeUnsupportedDisk, "volume", "migrate", read.name, "--to-pool", "b", "--method", "overlay")
	moves := func(method string, args ...string) {
		t.Helper()
		m := get[api.Migration](t, h, "migration", append([]string{"volume", "migrate", read.name}, args...)...)
		if m.State != api.MigrationCompleted || m.Method != method {
			t.Fatalf("the move is %s, by %s, want it by %s: %+v", m.State, m.Method, method, m)
		}
		g.noteMove(t, m)
		read.assertAttached(t)
		if got := sumOf(t, read.show(t).Location.Path); got != sum {
			t.Errorf("at %s its bytes are %s, and were %s", m.Dst.Path, got, sum)
		}
	}
	for _, to := range [][]string{{"--to-pool", "b", "--verify", "full"}, {"--to-path", device.Path}, {"--to-pool", "a"}} {
		moves(api.MethodMirror, to...)
		if modes := g.openModes(t, read.show(t).Location.Path); !slices.Equal(modes, []string{"read"}) {
			t.Errorf("QEMU has the image of a disk that is only read open for %v", modes)
		}
		live := h.slotsOf(t, g.Name)
		if i := slices.IndexFunc(live, func(s slot) bool { return s.Target == read.dev }); i < 0 || !strings.Contains(live[i].Rest, "<readonly/>") {
			t.Errorf("the disk is not read-only as the guest runs: %+v", live)
		}
	}
	g.writes(t)
	g.powerOff(t)
	moves(methodOffline, "--to-pool", "b")
	g.boot(t) // and sees it, read-only
	g.assertSettled(t)
}

func TestDomainThatIsNotOursToTouchIsRefused(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))

	t.Run("a block job of somebody else", func(t *testing.T) {
		h.virsh(t, "blockcopy", g.Name, "vda", filepath.Join(a, "theirs.raw"), "--format", "raw", "--transient-job", "--bandwidth", "1")
		before := g.volume(t, "vda")
		e := h.refuses(t, api.CodeInstanceBusy, "volume", "migrate", before.ID, "--to-pool", "b")
		mustContain(t, e.Message, "virsh blockjob --info "+g.Name+" vda", "--abort")
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
