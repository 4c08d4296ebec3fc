// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"errors"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func TestNewDiskLeavesNothingToBeProbed(t *testing.T) {
	for _, c := range []struct {
		spec hv.DiskSpec
		want string
	}{
		{
			hv.DiskSpec{
				Target: "vdb", Bus: "virtio", Serial: "a&b", BootOrder: 1,
				Image: hv.Image{Type: hv.SourceFile, Format: "qcow2", Path: "/pool/a"},
			},
			`<disk type="file" device="disk"><driver name="qemu" type="qcow2" cache="none" discard="unmap"></driver>` +
				`<source file="/pool/a"></source><backingStore></backingStore><target dev="vdb" bus="virtio"></target>` +
				`<serial>a&amp;b</serial><boot order="1"></boot></disk>`,
		},
		{
			hv.DiskSpec{
				Target: "sda", Bus: "scsi", ReadOnly: true, Shareable: true,
				Image: hv.Image{Type: hv.SourceBlock, Format: "raw", Path: "/dev/vg/a"},
			},
			`<disk type="block" device="disk"><driver name="qemu" type="raw" cache="none"></driver>` +
				`<source dev="/dev/vg/a"></source><backingStore></backingStore><target dev="sda" bus="scsi"></target>` +
				`<readonly></readonly><shareable></shareable></disk>`,
		},
	} {
		doc, err := newDiskXML(c.spec, nil)
		if err != nil {
			t.Error(err)
		}
		got := strings.Join(strings.FieldsFunc(doc, func(r rune) bool { return r == '\n' }), "")
		for strings.Contains(got, "  <") || strings.Contains(got, "> ") {
			got = strings.ReplaceAll(strings.ReplaceAll(got, "  <", "<"), "> ", ">")
		}
		if got != c.want {
			t.Errorf("disk XML\n%s\nwant\n%s", got, c.want)
		}
	}
}

func TestBootDiskComesBackOnlyWhereLibvirtWroteTheBootDevice(t *testing.T) {
	const disk = `<disk type='file'><target dev='vda'/><boot order='1'/></disk>`
	for boot, fits := range map[string]bool{
		"<boot dev='hd'/>":                      true,
		"":                                      false,
		"<boot dev='network'/>":                 false,
		"<boot dev='network'/><boot dev='hd'/>": false,
	} {
		doc, err := WithBootDisk("<domain><os><type>hvm</type>"+boot+"</os><devices><disk/></devices></domain>", disk)
		if !fits {
			if !errors.Is(err, hv.ErrUnsupported) {
				t.Errorf("%q: %v, want ErrUnsupported", boot, err)
			}
			continue
		}
		want := "<domain><os><type>hvm</type></os><devices><disk/>" + strings.ReplaceAll(disk, "'", `"`) + "</devices></domain>"
		if got := strings.ReplaceAll(doc, "'", `"`); err != nil || got != want {
			t.Errorf("%q: %v, domain\n%s\nwant\n%s", boot, err, got, want)
		}
	}
}
