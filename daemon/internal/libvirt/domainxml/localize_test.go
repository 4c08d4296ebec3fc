// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// rootSlot returns the disk of portableXML, with another image.
func rootSlot() []hv.DiskSpec {
	return []hv.DiskSpec{{
		Target: "vda", Image: hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/srv/pool/root.raw"},
		Slot: `<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/a'/><target dev='vda' bus='virtio'/></disk>`,
	}}
}

// libvirt's dump of the new definition counts, whatever was read here.
func TestWhatLibvirtMadeOfADefinitionIsComparedWithWhatWasMeant(t *testing.T) {
	n, err := Localize(webID, hv.DomainDefinition{Domain: portable("", "")}, rootSlot(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.CheckDefined(n.Doc); err != nil {
		t.Errorf("the same: %v", err)
	}
	for name, change := range map[string][2]string{
		"another image":         {`"/srv/pool/root.raw"`, `"/etc/shadow"`},
		"image in a drive":      {`<target dev="sda"`, `<source file="/etc/shadow"/><target dev="sda"`},
		"kernel":                {`<devices>`, `<os><kernel>/etc/shadow</kernel></os><devices>`},
		"another disk":          {`</devices>`, `<disk type="file" device="disk"><source file="/etc/shadow"/><target dev="vdb"/></disk></devices>`},
		"something below":       {`<backingStore/>`, `<backingStore type="file"><format type="raw"/><source file="/etc/shadow"/></backingStore>`},
		"another's NVRAM":       {webID + "_VARS.fd", "other_VARS.fd"},
		"device of the host":    {`</devices>`, `<hostdev mode="subsystem" type="pci"/></devices>`},
		"no image where one is": {`file="/srv/pool/root.raw"`, ``},
	} {
		dump := strings.Replace(n.Doc, change[0], change[1], 1)
		if dump == n.Doc {
			t.Fatalf("%s: %s is not in %s", name, change[0], n.Doc)
		}
		if err := n.CheckDefined(dump); !errors.Is(err, hv.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
	}
}

func TestASlotFromElsewhereIsPlainAndHandsNoCommandsToTheDevice(t *testing.T) {
	for name, slot := range map[string]string{
		"LUN":           `<disk type='block' device='lun'><driver name='qemu' type='raw'/><target dev='vda' bus='scsi'/></disk>`,
		"raw commands":  `<disk type='block' device='disk' rawio='yes'><target dev='vda' bus='scsi'/></disk>`,
		"all commands":  `<disk type='block' device='disk' sgio='unfiltered'><target dev='vda' bus='scsi'/></disk>`,
		"instruction":   `<disk type='file' device='disk'><target dev='vda' bus='virtio'/><vendor><?a b?>x</vendor></disk>`,
		"document type": `<!DOCTYPE disk [<!ATTLIST source file CDATA '/etc/shadow'>]><disk type='file' device='disk'><target dev='vda' bus='virtio'/></disk>`,
		"comment":       `<disk type='file' device='disk'><target dev='vda' bus='virtio'/><serial><!-- a -->x</serial></disk>`,
	} {
		specs := rootSlot()
		specs[0].Slot = slot
		if doc, err := DiskXML(specs[0], nil); !errors.Is(err, hv.ErrUnsupported) {
			t.Errorf("%s: %s, %v; want ErrUnsupported", name, doc, err)
		}
	}
}

// FuzzPortable: nothing in an accepted definition reaches into the host, according to another
// parser and to rules on the text alone.
func FuzzPortable(f *testing.F) {
	f.Add(portable("", ""))
	f.Add(portable("<os><kernel><?a b?>/etc/shadow</kernel></os>", ""))
	f.Add(portable("", "<memory model='nvdimm'><source><path>/x</path></source></memory>"))
	f.Add(portable("<!--a-->", "<![CDATA[/a]]>"))
	f.Add("<!DOCTYPE domain [<!ATTLIST source file CDATA '/etc/shadow'>]>" + portable("", ""))
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Localize(webID, hv.DomainDefinition{Domain: text}, nil, nil)
		if err != nil {
			return
		}
		mustReachNothing(t, n.Doc)
	})
}

// mustReachNothing checks the tokens of a definition before it is defined.
func mustReachNothing(t *testing.T, doc string) {
	t.Helper()
	var place []string
	var texts []string
	free := func() bool { // libvirt ignores these
		return len(place) > 1 && (place[1] == "metadata" || place[1] == "title" || place[1] == "description")
	}
	look := func(where, value string) {
		if free() || !strings.HasPrefix(strings.TrimSpace(value), "/") {
			return
		}
		for _, allowed := range []string{"/usr/share/", NVRAMHome, "/dev/urandom", "/dev/random", "/dev/hwrng", "/machine"} {
			if strings.HasPrefix(strings.TrimSpace(value), allowed) {
				return
			}
		}
		t.Errorf("%s is %q in:\n%s", where, value, doc)
	}
	decoder := xml.NewDecoder(strings.NewReader(doc))
	for {
		token, err := decoder.RawToken()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("what was made of it cannot be read: %v:\n%s", err, doc)
		}
		switch token := token.(type) {
		case xml.StartElement:
			place, texts = append(place, token.Name.Local), append(texts, "")
			for _, attr := range token.Attr {
				look(strings.Join(place, "/")+"@"+attr.Name.Local, attr.Value)
			}
		case xml.CharData:
			if len(texts) > 0 {
				texts[len(texts)-1] += string(token)
			}
		case xml.EndElement:
			look(strings.Join(place, "/"), texts[len(texts)-1])
			place, texts = place[:len(place)-1], texts[:len(texts)-1]
		default:
			if !free() {
				t.Errorf("%T in:\n%s", token, doc)
			}
		}
	}
}
