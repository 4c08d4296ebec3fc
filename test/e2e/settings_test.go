// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beevik/etree"
	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// allSettings is what the owner of a disk may have set, of a virtio disk that the guest
// writes to. A guest that writes as fast as it can stays below the limits.
const allSettings = `<disk>
	<driver cache='none' io='native' discard='unmap' detect_zeroes='unmap' error_policy='stop' rerror_policy='report'
		ioeventfd='on' event_idx='on' queues='2' queue_size='128'/>
	<blockio logical_block_size='512' physical_block_size='4096'/>
	<iotune>
		<read_bytes_sec>400000000</read_bytes_sec><write_bytes_sec>300000000</write_bytes_sec>
		<total_iops_sec>50000</total_iops_sec><total_iops_sec_max>60000</total_iops_sec_max>
		<size_iops_sec>4096</size_iops_sec><group_name>limits-of-the-owner</group_name><total_iops_sec_max_length>5</total_iops_sec_max_length>
	</iotune>
	<boot order='2'/>
</disk>`

// scsiDisk has what only SCSI disks have. The lab's guest has no driver for it.
const scsiDisk = `<disk type='file' device='disk' snapshot='no'>
	<driver name='qemu' type='raw' cache='none' io='native' discard='unmap'/><source file='PATH'/><backingStore/>
	<target dev='sda' bus='scsi' rotation_rate='1'/>
	<iotune><write_iops_sec>900</write_iops_sec></iotune>
	<serial>own-serial</serial><wwn>5000c50015ea71ac</wwn><vendor>ACME</vendor><product>DISK</product><boot order='3'/>
</disk>`

func TestADiskKeepsEverySettingThroughMovesAndThroughDetachAndAttach(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	d := h.diskIn(t, a, api.FormatRaw)
	d.IOThread = lab.IOThreads(t)
	g := h.defineGuest(t, h.diskIn(t, a, api.FormatRaw), d)
	scsi := h.diskIn(t, a, api.FormatRaw)
	g.setAll(t, "vdb", strings.ReplaceAll(scsiDisk, "PATH", scsi.Path))
	g.boot(t)
	g.adopt(t)
	content := sumOf(t, scsi.Path)
	before := g.settingsNow(t)
	move := func(t *testing.T, target string, args ...string) {
		t.Helper()
		if target == "vdb" {
			g.migrate(t, target, args...)
			return
		}
		h.ctl(t, append([]string{"volume", "migrate", g.volumeName(target)}, args...)...) // the guest cannot say how long
	}
	for _, step := range []struct {
		name string
		do   func(t *testing.T, target string)
	}{
		{"moved by overlay", func(t *testing.T, target string) {
			move(t, target, "--to-pool", "b", "--method", "overlay")
		}},
		{"moved by mirror", func(t *testing.T, target string) {
			move(t, target, "--to-pool", "a", "--method", "mirror")
		}},
		{"detached and attached", func(t *testing.T, target string) {
			g.quiesce(t) // what it writes to a disk that is away is an error
			h.ctl(t, "volume", "detach", g.volumeName(target), g.Name)
			h.ctl(t, "volume", "attach", g.volumeName(target), g.Name)
		}},
		{"moved while it is stopped", func(t *testing.T, target string) {
			if g.state(t) == "running" {
				g.destroy(t)
			}
			move(t, target, "--to-pool", "b")
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.do(t, "sda")
			step.do(t, "vdb")
			if g.state(t) != "running" {
				g.boot(t)
			}
			if _, err := g.WaitDisk(t.Context(), d.Serial); err != nil {
				t.Fatal(err)
			}
			g.write(t)
			if diff := cmp.Diff(before, g.settingsNow(t)); diff != "" {
				t.Errorf("settings (-before +after):\n%s", diff)
			}
			if content != sumOf(t, g.volume(t, "sda").Location.Path) {
				t.Error("the SCSI disk has another content")
			}
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}

// setAll gives a disk of the guest's definition all settings, and the guest another disk.
func (g *guest) setAll(t *testing.T, target, another string) {
	t.Helper()
	read := func(text string) *etree.Document {
		doc := etree.NewDocument()
		if err := doc.ReadFromString(text); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	domain := read(g.host.virsh(t, "dumpxml", g.Name, "--inactive"))
	disk := domain.FindElement("/domain/devices/disk/target[@dev='" + target + "']").Parent()
	for _, el := range read(allSettings).Root().ChildElements() {
		if el.Tag != "driver" {
			disk.AddChild(el)
			continue
		}
		for _, attr := range el.Attr {
			disk.SelectElement("driver").CreateAttr(attr.Key, attr.Value)
		}
	}
	devices := domain.FindElement("/domain/devices")
	devices.AddChild(read("<controller type='scsi' model='virtio-scsi'/>").Root())
	devices.AddChild(read(another).Root())
	if boot := domain.FindElement("/domain/os/boot"); boot != nil { // libvirt's own, which no disk with an order goes with
		boot.Parent().RemoveChild(boot)
	}
	domain.FindElement("/domain/devices/disk").CreateElement("boot").CreateAttr("order", "1")
	file := filepath.Join(t.TempDir(), "domain.xml")
	text, err := domain.WriteToString()
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.host.virsh(t, "define", file)
	g.slots = g.persistentSlots(t)
}

// settings are those of the disks of a guest that runs.
type settings struct {
	Live []string                  // all of a disk's XML but where the bytes are
	QEMU map[string]map[string]any // what QEMU says that it does, by its name of the disk
}

func (g *guest) settingsNow(t *testing.T) settings {
	t.Helper()
	now := settings{QEMU: map[string]map[string]any{}}
	for _, s := range g.host.slotsOf(t, g.Name) {
		now.Live = append(now.Live, s.Rest)
	}
	var answer struct {
		Return []struct {
			QDev     string         `json:"qdev"`
			Inserted map[string]any `json:"inserted"`
		} `json:"return"`
	}
	text := g.host.virsh(t, "qemu-monitor-command", g.Name, `{"execute":"query-block"}`)
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	for _, d := range answer.Return {
		// Libvirt 11 leaves the bitmap on the image with which it bridges the end of a copy.
		for _, ofTheImage := range []string{"image", "file", "node-name", "drv", "backing_file", "backing_file_depth", "dirty-bitmaps"} {
			delete(d.Inserted, ofTheImage)
		}
		now.QEMU[d.QDev] = d.Inserted
	}
	return now
}
