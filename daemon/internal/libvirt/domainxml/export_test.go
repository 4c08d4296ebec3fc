// SPDX-License-Identifier: Apache-2.0

package domainxml_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

var (
	export  = hv.Image{Type: hv.SourceNetwork, Format: "raw", Path: "nbd+unix:///web?socket=/run/nbd.sock"}
	overlay = hv.Image{Type: hv.SourceFile, Format: "qcow2", Path: "/overlays/o.qcow2"}
)

// exportDisk returns a disk with additions to its <source>.
func exportDisk(attrs, children string) string {
	return `<disk type="network" device="disk"><driver name="qemu" type="raw" cache="none"/><source protocol="nbd" name="web" ` + attrs +
		`><host transport="unix" socket="/run/nbd.sock"/>` + children + `</source><backingStore/><target dev="vda" bus="virtio"/></disk>`
}

// remoteDisk returns a disk with an export at a <host> with these attributes.
func remoteDisk(host string) string {
	return strings.Replace(exportDisk("", ""), `transport="unix" socket="/run/nbd.sock"`, host, 1)
}

var remote = hv.Image{Type: hv.SourceNetwork, Format: "raw", Path: "nbd://nbd.example:10809/web"}

// libvirt adds the default transport and port.
func TestAnExportOverTCPIsReadHoweverItIsWritten(t *testing.T) {
	for _, host := range []string{`name="nbd.example"`, `name="nbd.example" port="10809"`, `transport="tcp" name="nbd.example" port="10809"`} {
		d, err := domainxml.ParseDisk(remoteDisk(host), nil)
		if err != nil || len(d.Chain) != 1 || d.Chain[0] != remote || d.Uncarried != "" {
			t.Errorf("%s: %+v, %v", host, d, err)
		}
	}
	if d, err := domainxml.ParseDisk(remoteDisk(`name="nbd.example" port="10810"`), nil); err != nil || d.Top() == remote {
		t.Errorf("another port: %+v, %v", d, err)
	}
}

func TestAnExportIsReadFromADefinitionOfAnyVersion(t *testing.T) {
	for _, attrs := range []string{"", `tls="no"`, `index="1"`} {
		d, err := domainxml.ParseDisk(exportDisk(attrs, ""), nil)
		if err != nil || len(d.Chain) != 1 || d.Chain[0] != export || d.Uncarried != "" || !d.Terminated {
			t.Errorf("%s: %+v, %v", attrs, d, err)
		}
	}
}

// The beginning of an image at an address works like the beginning of a file: as the top, below an
// overlay, as the target of a job and in a new disk. The next image inherits nothing of it.
func TestADiskIsTheBeginningOfWhatIsAtAnAddress(t *testing.T) {
	file := hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/pool/web.raw"}
	for _, img := range []hv.Image{export, remote, rbdImage} {
		part := img
		part.SliceBytes = 8 << 20
		domain := `<domain><devices>` + exportDisk("", "") + `</devices></domain>`
		for _, chain := range [][]hv.Image{{part}, {overlay, part}, {img}, {overlay, img}, {part}, {file}} {
			text, err := domainxml.Rechain(domain, "vda", chain, clusters)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text, `<slices><slice type="storage" offset="0" size="8388608"/></slices>`) != slices.Contains(chain, part) {
				t.Errorf("%v became %s", chain, text)
			}
			domain = `<domain><devices>` + text + `</devices></domain>`
			if is, err := domainxml.HasConfigChain(domain, "vda", chain, clusters); err != nil || !is {
				t.Errorf("%v became %s, %v", chain, domain, err)
			}
			if d, err := domainxml.ParseDisk(text, clusters); err != nil || d.Uncarried != "" || d.Slices {
				t.Errorf("of %v would be lost: %+v, %v", chain, d, err)
			}
		}
		for what, write := range map[string]func() (string, error){
			"a job": func() (string, error) { return domainxml.CopyXML([]hv.Image{part}, clusters) },
			"a new disk": func() (string, error) {
				return domainxml.DiskXML(hv.DiskSpec{Target: "vda", Bus: "virtio", Image: part}, clusters)
			},
			"a slot": func() (string, error) {
				return domainxml.DiskXML(hv.DiskSpec{Target: "vda", Image: part, Slot: exportDisk("", "")}, clusters)
			},
		} {
			text, err := write()
			if d, parse := domainxml.ParseDisk(text, clusters); err != nil || parse != nil || d.Top() != part {
				t.Errorf("%s to %v: %s, %v, %v", what, part, text, err, parse)
			}
		}
	}
}

// Settings that the address cannot express would be lost with another image, so the disk is no
// volume.
func TestAnExportThatIsOpenedInAnotherWayHasNoAddress(t *testing.T) {
	for name, disk := range map[string]string{
		"TLS":        exportDisk(`tls="yes"`, ""),
		"reconnect":  exportDisk("", `<reconnect delay="10"/>`),
		"two hosts":  exportDisk("", `<host transport="unix" socket="/run/other.sock"/>`),
		"RDMA":       remoteDisk(`transport="rdma" name="nbd.example" port="10809"`),
		"upper case": remoteDisk(`name="NBD.example" port="10809"`),
		"IPv6":       remoteDisk(`name="::1" port="10809"`),
		"both":       remoteDisk(`name="nbd.example" port="10809" socket="/run/nbd.sock"`),
		"a comma":    strings.Replace(exportDisk("", ""), `name="web"`, `name="web,x"`, 1),
		"an escape":  strings.Replace(exportDisk("", ""), `name="web"`, `name="w%62"`, 1),
		"a question": strings.Replace(exportDisk("", ""), `name="web"`, `name="web?socket=/run/x"`, 1),
		"rbd":        `<disk type="network" device="disk"><driver name="qemu" type="raw"/><source protocol="rbd" name="rbd/web"><host name="mon"/></source><target dev="vda" bus="virtio"/></disk>`,
	} {
		d, err := domainxml.ParseDisk(disk, nil)
		if err != nil || len(d.Chain) != 1 || d.Chain[0].Type != hv.SourceNetwork || d.Chain[0].Path != "" {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

func TestADiskIsPutFromAnExportUnderAnOverlayOntoAFileAndBack(t *testing.T) {
	file := hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/pool/web.raw"}
	domain := `<domain><devices>` + exportDisk(`tls="no" index="1"`, "") + `</devices></domain>`
	for _, chain := range [][]hv.Image{{overlay, export}, {file}, {overlay, file}, {export}, {remote}, {overlay, remote}, {file}, {remote}, {export}} {
		text, err := domainxml.Rechain(domain, "vda", chain, nil)
		if err != nil {
			t.Fatal(err)
		}
		if chain[0] == file && (strings.Contains(text, "host") || strings.Contains(text, "nbd")) {
			t.Errorf("something of the export is left: %s", text)
		}
		domain = `<domain><devices>` + text + `</devices></domain>`
		if is, err := domainxml.HasConfigChain(domain, "vda", chain, nil); err != nil || !is {
			t.Errorf("%v became %s, %v", chain, domain, err)
		}
	}
}

func TestAnAddressThatIsNoneIsNotWritten(t *testing.T) {
	for _, path := range []string{"", "pool/name", "nbd+unix:///web", "nbd+unix:///web?socket=/run/s,x=y"} {
		img := hv.Image{Type: hv.SourceNetwork, Format: "raw", Path: path}
		if _, err := domainxml.Rechain(`<domain><devices>`+exportDisk("", "")+`</devices></domain>`, "vda", []hv.Image{img}, nil); !errors.Is(err, hv.ErrUnsupported) {
			t.Errorf("%q: %v", path, err)
		}
		if text, err := domainxml.DiskXML(hv.DiskSpec{Target: "vda", Bus: "virtio", Image: img}, nil); !errors.Is(err, hv.ErrUnsupported) {
			t.Errorf("%q: %s, %v", path, text, err)
		}
	}
	for _, img := range []hv.Image{export, remote} {
		text, err := domainxml.DiskXML(hv.DiskSpec{Target: "vda", Bus: "virtio", Image: img}, nil)
		if d, parse := domainxml.ParseDisk(text, nil); err != nil || parse != nil || d.Top() != img {
			t.Errorf("%s, %v, %v", text, err, parse)
		}
	}
}
