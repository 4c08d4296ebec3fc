// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// A detached disk gets all of its owner's settings back.
func TestASlotKeepsEverySettingOfItsDisk(t *testing.T) {
	const disk = `<disk type="file" device="disk" snapshot="no" model="virtio-transitional">` +
		`<driver name="qemu" type="qcow2" cache="writeback" error_policy="stop" rerror_policy="report" io="threads" ioeventfd="on"` +
		` event_idx="off" copy_on_read="on" discard="unmap" iothread="2" detect_zeroes="unmap" queues="3" queue_size="256"` +
		` packed="on"><statistics><statistic interval="1"/></statistics></driver>` +
		`<source file="/old" startupPolicy="optional"/><backingStore/>` +
		`<target dev="vdb" bus="virtio"/>` +
		`<geometry cyls="1" heads="2" secs="3"/><blockio logical_block_size="512" physical_block_size="4096"/>` +
		`<iotune><total_iops_sec>10</total_iops_sec><group_name>g</group_name></iotune>` +
		`<wwn>5000c50015ea71ac</wwn><vendor>V</vendor><product>P</product><serial>S</serial><boot order="2"/>` +
		`<address type="pci" domain="0x0000" bus="0x00" slot="0x09" function="0x0"/><newer than="volferry"/></disk>`
	got, err := slotXML(hv.DiskSpec{Target: "vdb", Slot: disk, Image: hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/new"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(`type="qcow2"`, `type="raw"`, ` file="/old" startupPolicy="optional"`, ` startupPolicy="optional" file="/new"`).Replace(disk)
	if diff := cmp.Diff(want, strings.ReplaceAll(got, "'", `"`)); diff != "" {
		t.Errorf("disk (-want +got):\n%s", diff)
	}
}

// libvirt refuses a metadata cache with an image of any other format. A move cannot check that
// while its instance is shelved or the disk is detached.
func TestASlotLeavesTheMetadataCacheWithQcow2(t *testing.T) {
	const cache = "<metadata_cache>"
	disk := `<disk type='file'><driver name='qemu' type='qcow2'><metadata_cache><max_size unit='bytes'>1048576</max_size></metadata_cache></driver>` +
		`<source file='/old'/><target dev='vdb' bus='virtio'/></disk>`
	for format, want := range map[string]bool{"qcow2": true, "raw": false} {
		got, err := slotXML(hv.DiskSpec{Target: "vdb", Slot: disk, Image: hv.Image{Type: hv.SourceFile, Format: format, Path: "/new"}}, nil)
		if err != nil || strings.Contains(got, cache) != want {
			t.Errorf("%s: want %s: %t, got %s, %v", format, cache, want, got, err)
		}
	}
}

// Settings that define how to open the old image do not belong to another image. A disk without
// them would be a different disk: a LUKS disk would show its guest ciphertext.
func TestASlotWithWhatCannotBeCarriedIsRefusedByName(t *testing.T) {
	for rest, name := range map[string]string{
		`<source file='/a'><encryption format='luks'><secret type='passphrase' uuid='u'/></encryption></source>`: "<encryption> in its <source>",
		`<source file='/a'/><encryption format='qcow'/>`:                                                         "<encryption>",
		`<source file='/a'><slices><slice type='storage' offset='512' size='1'/></slices></source>`:              "<slices> in its <source>",
		`<source dev='/a'><reservations managed='yes'/></source>`:                                                "<reservations> in its <source>",
		`<source file='/a' fdgroup='g'/>`:                                                                        "fdgroup= in its <source>",
		`<source file='/a'><newer/></source>`:                                                                    "<newer> in its <source>",
		`<source file='/a'><seclabel model='dac'><label>0:0</label></seclabel></source>`:                         "<seclabel> in its <source>",
		`<source file='/a'/><backingStore><source file='/b'><encryption format='luks'/></source></backingStore>`: "<encryption> in its <source>",
	} {
		disk := `<disk type='file'><driver name='qemu' type='raw'/><target dev='vdb' bus='virtio'/>` + rest + `</disk>`
		_, err := slotXML(hv.DiskSpec{Target: "vdb", Slot: disk, Image: hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/new"}}, nil)
		if !errors.Is(err, hv.ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want ErrUnsupported that names %s", rest, err, name)
		}
		if d, err := ParseDisk(disk, nil); err != nil || d.Uncarried != name {
			t.Errorf("%s: ParseDisk says %q, %v, want %s", rest, d.Uncarried, err, name)
		}
	}
}
