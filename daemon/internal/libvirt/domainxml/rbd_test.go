// SPDX-License-Identifier: Apache-2.0

package domainxml_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

const (
	clusterID  = "5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11"
	cephSecret = "2ec115d7-3a88-3ceb-bc12-0ac909a6fd87"
)

var (
	clusters = rbd.Clusters{
		clusterID:                              {Monitors: []string{"mon1.example:6789", "10.0.0.2:3300"}, User: "libvirt", Secret: cephSecret},
		"00000000-58a1-4ac3-8f0e-0e3c6f0f7a11": {Monitors: []string{"mon2.example:6789"}, User: "libvirt", Secret: cephSecret},
	}
	rbdImage = hv.Image{Type: hv.SourceNetwork, Format: "raw", Path: "rbd://" + clusterID + "/rbd/web"}
)

const (
	monitors = `<host name="mon1.example" port="6789"/><host name="10.0.0.2" port="3300"/>`
	cephAuth = `<auth username="libvirt"><secret type="ceph" uuid="` + cephSecret + `"/></auth>`
)

// rbdDisk returns a disk of an RBD image with these attributes and children of its <source>, and
// these sibling elements.
func rbdDisk(attrs, children, beside string) string {
	return `<disk type="network" device="disk"><driver name="qemu" type="raw" cache="none"/>` + beside + `<source protocol="rbd" name="rbd/web" ` + attrs +
		`>` + children + `</source><backingStore/><target dev="vda" bus="virtio"/></disk>`
}

func TestAnRBDImageIsReadHoweverItIsWritten(t *testing.T) {
	for name, disk := range map[string]string{
		"as it is written here":   rbdDisk("", monitors+cephAuth, ""),
		"as it runs":              rbdDisk(`index="1"`, monitors+cephAuth, ""),
		"auth beside the source":  rbdDisk("", monitors, cephAuth),
		"monitors in other order": rbdDisk("", `<host name="10.0.0.2" port="3300"/><host name="mon1.example" port="6789"/>`+cephAuth, ""),
		"the default port":        rbdDisk("", `<host name="mon1.example"/><host name="10.0.0.2" port="3300" transport="tcp"/>`+cephAuth, ""),
	} {
		d, err := domainxml.ParseDisk(disk, clusters)
		if err != nil || len(d.Chain) != 1 || d.Chain[0] != rbdImage || d.Uncarried != "" || !d.Terminated {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// Settings that the address cannot express would be lost with another image, so the disk is no
// volume.
func TestAnRBDImageThatIsOpenedInAnotherWayHasNoAddress(t *testing.T) {
	for name, disk := range map[string]string{
		"no auth":              rbdDisk("", monitors, ""),
		"another user":         rbdDisk("", monitors+strings.Replace(cephAuth, "libvirt", "admin", 1), ""),
		"another secret":       rbdDisk("", monitors+strings.Replace(cephAuth, "2ec1", "2ec2", 1), ""),
		"a secret by its name": rbdDisk("", monitors+`<auth username="libvirt"><secret type="ceph" usage="x"/></auth>`, ""),
		"a monitor less":       rbdDisk("", `<host name="mon1.example" port="6789"/>`+cephAuth, ""),
		"a monitor more":       rbdDisk("", monitors+`<host name="mon2.example" port="6789"/>`+cephAuth, ""),
		"another port":         rbdDisk("", strings.Replace(monitors, "6789", "6790", 1)+cephAuth, ""),
		"no monitors":          rbdDisk("", cephAuth, ""),
		"a snapshot":           rbdDisk("", monitors+`<snapshot name="s"/>`+cephAuth, ""),
		"a configuration":      rbdDisk("", monitors+`<config file="/etc/ceph/x.conf"/>`+cephAuth, ""),
		"encryption":           rbdDisk("", monitors+cephAuth+`<encryption format="luks" engine="librbd"><secret type="passphrase" uuid="`+cephSecret+`"/></encryption>`, ""),
		"a slice":              rbdDisk("", monitors+cephAuth+`<slices><slice type="storage" offset="512" size="512"/></slices>`, ""),
		"two slices":           rbdDisk("", monitors+cephAuth+`<slices><slice type="storage" offset="0" size="512"/><slice type="format" offset="0" size="512"/></slices>`, ""),
		"a namespace":          strings.Replace(rbdDisk("", monitors+cephAuth, ""), "rbd/web", "rbd/ns/web", 1),
		"options in the name":  strings.Replace(rbdDisk("", monitors+cephAuth, ""), "rbd/web", "rbd/web:conf=/x", 1),
		"two users":            rbdDisk("", monitors+cephAuth, strings.Replace(cephAuth, "libvirt", "admin", 1)),
	} {
		d, err := domainxml.ParseDisk(disk, clusters)
		if err != nil || len(d.Chain) != 1 || d.Chain[0].Type != hv.SourceNetwork || d.Chain[0].Path != "" && d.Uncarried == "" {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	if d, err := domainxml.ParseDisk(rbdDisk("", monitors+cephAuth, ""), nil); err != nil || d.Chain[0].Path != "" {
		t.Errorf("where no cluster is known: %+v, %v", d, err)
	}
}

func TestADiskIsPutFromAnRBDImageUnderAnOverlayOntoAFileAndBack(t *testing.T) {
	file := hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/pool/web.raw"}
	other := hv.Image{Type: hv.SourceNetwork, Format: "raw", Path: "rbd://00000000-58a1-4ac3-8f0e-0e3c6f0f7a11/fast/x"}
	domain := `<domain><devices>` + rbdDisk("", monitors, cephAuth) + `</devices></domain>`
	for _, chain := range [][]hv.Image{{overlay, rbdImage}, {file}, {rbdImage}, {other}, {export}, {rbdImage}, {remote}, {file}} {
		text, err := domainxml.Rechain(domain, "vda", chain, clusters)
		if err != nil {
			t.Fatal(err)
		}
		if chain[0] == file && (strings.Contains(text, "host") || strings.Contains(text, "rbd") || strings.Contains(text, "auth")) {
			t.Errorf("something of the image is left: %s", text)
		}
		domain = `<domain><devices>` + text + `</devices></domain>`
		if is, err := domainxml.HasConfigChain(domain, "vda", chain, clusters); err != nil || !is {
			t.Errorf("%v became %s, %v", chain, domain, err)
		}
	}
}

func TestAnRBDImageOfNoKnownClusterIsNotWritten(t *testing.T) {
	for _, spec := range []hv.DiskSpec{
		{Target: "vda", Bus: "virtio", Image: rbdImage},
		{Target: "vda", Image: rbdImage, Slot: rbdDisk("", monitors, cephAuth)},
	} {
		if text, err := domainxml.DiskXML(spec, nil); !errors.Is(err, hv.ErrUnsupported) {
			t.Errorf("%s, %v", text, err)
		}
		text, err := domainxml.DiskXML(spec, clusters)
		if d, parse := domainxml.ParseDisk(text, clusters); err != nil || parse != nil || d.Top() != rbdImage {
			t.Errorf("%s, %v, %v", text, err, parse)
		}
	}
	if text, err := domainxml.CopyXML([]hv.Image{rbdImage}, nil); !errors.Is(err, hv.ErrUnsupported) {
		t.Errorf("a job goes to %s, %v", text, err)
	}
	text, err := domainxml.CopyXML([]hv.Image{rbdImage}, clusters)
	if d, parse := domainxml.ParseDisk(text, clusters); err != nil || parse != nil || d.Top() != rbdImage || !d.Terminated {
		t.Errorf("a job goes to %s, %v, %v", text, err, parse)
	}
}
