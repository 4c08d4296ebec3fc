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

const luksSecret = "2f2cbd1e-6c2f-4f0e-9a5b-0d6a0a6f4e11"

// luksDisk returns a disk with these children of its <source>.
func luksDisk(children string) string {
	return `<disk type="file" device="disk"><driver name="qemu" type="raw" cache="none"/><source file="/old">` + children + `</source><backingStore/><target dev="vda" bus="virtio"/></disk>`
}

func encryption(attrs, children string) string {
	return `<encryption format="luks" ` + attrs + `>` + children + `</encryption>`
}

const passphrase = `<secret type="passphrase" uuid="` + luksSecret + `"/>`

func TestALUKSContainerIsReadWithItsSecretAndMovesWithIt(t *testing.T) {
	src := hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/old", LUKSSecret: luksSecret}
	for _, attrs := range []string{"", `engine="qemu"`} {
		disk := luksDisk(encryption(attrs, passphrase))
		d, err := domainxml.ParseDisk(disk, nil)
		if err != nil || !slices.Equal(d.Chain, []hv.Image{src}) || d.Encrypted || d.Uncarried != "" || !d.IsLUKS() {
			t.Errorf("%s: %+v, %v", attrs, d, err)
		}
		for _, dst := range []hv.Image{
			{Type: hv.SourceFile, Format: "raw", Path: "/new", LUKSSecret: luksSecret},
			{Type: hv.SourceBlock, Format: "raw", Path: "/dev/new", LUKSSecret: luksSecret},
			{Type: hv.SourceFile, Format: "raw", Path: "/plain"},
		} {
			text, err := domainxml.Rechain(`<domain><devices>`+disk+`</devices></domain>`, "vda", []hv.Image{dst}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d, err := domainxml.ParseDisk(text, nil); err != nil || !slices.Equal(d.Chain, []hv.Image{dst}) || strings.Contains(text, "encryption") != d.IsLUKS() {
				t.Errorf("to %+v: %s, %v", dst, text, err)
			}
		}
	}
}

// Settings that the UUID cannot express would be lost with another image, so they are not carried.
func TestAnEncryptionThatTheSecretAloneDoesNotSayIsNotCarried(t *testing.T) {
	for name, disk := range map[string]string{
		"a secret by its usage": luksDisk(encryption("", `<secret type="passphrase" usage="web"/>`)),
		"no UUID":               luksDisk(encryption("", `<secret type="passphrase" uuid="u"/>`)),
		"two secrets":           luksDisk(encryption("", passphrase+passphrase)),
		"no secret":             luksDisk(encryption("", "")),
		"another format":        luksDisk(strings.Replace(encryption("", passphrase), `"luks"`, `"luks2"`, 1)),
		"another engine":        luksDisk(encryption(`engine="librbd"`, passphrase)),
		"a cipher":              luksDisk(encryption("", passphrase+`<cipher name="aes"/>`)),
		"beside the source":     strings.Replace(luksDisk(""), "<target", encryption("", passphrase)+"<target", 1),
	} {
		if d, err := domainxml.ParseDisk(disk, nil); err != nil || d.Uncarried == "" {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	sliced := luksDisk(`<slices><slice type="storage" offset="0" size="4096"/></slices>` + encryption("", passphrase))
	if d, err := domainxml.ParseDisk(sliced, nil); err != nil || !d.Encrypted || d.IsLUKS() {
		t.Errorf("a slice: %+v, %v", d, err)
	}
}

func TestAJobAndASnapshotOfAnEncryptedDiskSayWithWhichSecret(t *testing.T) {
	img := hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/new", LUKSSecret: luksSecret}
	doc, err := domainxml.CopyXML([]hv.Image{img}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := domainxml.ParseDisk(doc, nil); err != nil || !slices.Equal(d.Chain, []hv.Image{img}) || !strings.Contains(doc, `engine="qemu"`) {
		t.Errorf("the destination of a copy is %s, %v", doc, err)
	}
	overlay := hv.Image{Type: hv.SourceFile, Format: "qcow2", Path: "/ovl", LUKSSecret: luksSecret}
	doc, err = domainxml.SnapshotXML([]hv.Disk{{Target: "vda"}, {Target: "vdb"}}, "vda", overlay)
	if err != nil || strings.Count(doc, "<encryption") != 1 {
		t.Errorf("the snapshot is %s, %v", doc, err)
	}
	source, _, _ := strings.Cut(doc[strings.Index(doc, "<source"):], "</source>")
	d, err := domainxml.ParseDisk(`<disk type="file" device="disk"><driver name="qemu" type="qcow2"/>`+source+`</source><target dev="vda"/></disk>`, nil)
	if err != nil || !slices.Equal(d.Chain, []hv.Image{overlay}) || d.Encrypted {
		t.Errorf("it is taken as %+v, %v", d, err)
	}
}

func TestAnEncryptedOverlayOverAContainerIsAChain(t *testing.T) {
	chain := []hv.Image{
		{Type: hv.SourceFile, Format: "qcow2", Path: "/ovl", LUKSSecret: luksSecret},
		{Type: hv.SourceBlock, Format: "raw", Path: "/dev/a", LUKSSecret: luksSecret},
	}
	domain := `<domain type="kvm"><devices>` + luksDisk(encryption("", passphrase)) + `</devices></domain>`
	text, err := domainxml.Rechain(domain, "vda", chain, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := domainxml.ParseDisk(text, nil); err != nil || !slices.Equal(d.Chain, chain) || !d.Terminated || d.Encrypted || d.Uncarried != "" {
		t.Errorf("%s is read as %+v, %v", text, d, err)
	}
}

func TestNoLUKSContainerIsAttachedToAGuest(t *testing.T) {
	img := hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/new", LUKSSecret: luksSecret}
	if _, err := domainxml.DiskXML(hv.DiskSpec{Target: "vdb", Bus: "virtio", Image: img}, nil); !errors.Is(err, hv.ErrUnsupported) {
		t.Errorf("DiskXML: %v", err)
	}
}
