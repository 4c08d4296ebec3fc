// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// sample reads XML from a libvirtd 9.0.
func sample(t *testing.T, name string) string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

func file(format, path string) hv.Image {
	return hv.Image{Type: hv.SourceFile, Format: format, Path: path}
}

func TestParseLiveDomainWithACopy(t *testing.T) {
	got, err := ParseDomain(sample(t, "live-copy.xml"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Active {
		t.Error("the XML of a process is not seen as one")
	}
	want := []hv.Disk{
		{
			Target: "vda", Bus: "virtio", Device: "disk", Serial: "ser-a", Address: "pci:0000:00:03.0", BootOrder: 1,
			Chain:      []hv.Image{file("qcow2", "/srv/images/o2.qcow2"), file("qcow2", "/srv/images/d.qcow2")},
			Terminated: true,
			Mirror:     &hv.Mirror{Job: hv.JobCopy, Image: file("raw", "/srv/images/e.raw"), Ready: true},
			Cache:      "none", Discard: "unmap", ErrorPolicy: "stop", ThrottleGroup: "both",
		},
		{
			Target: "vdb", Bus: "virtio", Device: "disk", Address: "pci:0000:00:04.0",
			Chain: []hv.Image{file("raw", "/srv/images/b.raw")}, Terminated: true,
		},
		{
			Target: "sda", Bus: "scsi", Device: "disk", Address: "drive:0:0:0:0", Shareable: true, Cache: "none",
			Chain: []hv.Image{file("raw", "/srv/images/s.raw")}, Terminated: true,
		},
		{Target: "hda", Bus: "ide", Device: "cdrom", Address: "drive:0:0:0:0", ReadOnly: true},
	}
	if diff := cmp.Diff(want, got.Disks); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
}

func TestParseActiveCommit(t *testing.T) {
	got, err := ParseDomain(sample(t, "live-commit-ready.xml"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &hv.Mirror{Job: hv.JobActiveCommit, Image: file("raw", "/srv/images/b.raw"), Ready: true}
	if diff := cmp.Diff(want, got.Disks[1].Mirror); diff != "" {
		t.Errorf("mirror (-want +got):\n%s", diff)
	}
	base, err := BackingName(sample(t, "live-commit-ready.xml"), "vdb")
	if err != nil || base != "vdb[3]" {
		t.Errorf("backingName = %q, %v, want vdb[3]", base, err)
	}
}

func TestSnapshotLeavesADefinitionWithoutStatedEnd(t *testing.T) {
	got, err := ParseDomain(sample(t, "inactive-after-snapshot.xml"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	vdb := got.Disks[1]
	want := []hv.Image{file("qcow2", "/srv/images/ob.qcow2"), file("raw", "/srv/images/b.raw")}
	if diff := cmp.Diff(want, vdb.Chain); diff != "" || vdb.Terminated || got.Active {
		t.Errorf("terminated %v, active %v, chain (-want +got):\n%s", vdb.Terminated, got.Active, diff)
	}
}

// The translation must keep every fact that makes Volferry refuse a disk.
func TestParseEveryReasonToRefuseADisk(t *testing.T) {
	for doc, want := range map[string]hv.Disk{
		`<disk type='volume' device='lun'><source pool='p' volume='v'/></disk>`: {
			Device: "lun", Chain: []hv.Image{{Type: "volume"}},
		},
		`<disk type='network'><driver type='raw'/><source protocol='rbd' name='p/v'/></disk>`: {
			Device: "disk", Chain: []hv.Image{{Type: "network", Format: "raw"}},
		},
		`<disk type='file'><driver copy_on_read='on'/><source file='/a'/><transient/></disk>`: {
			Device: "disk", Chain: []hv.Image{file("", "/a")}, CopyOnRead: true, Transient: true,
		},
		`<disk type='block'><source dev='/dev/a'><encryption format='luks'/></source></disk>`: {
			Device: "disk", Chain: []hv.Image{{Type: hv.SourceBlock, Path: "/dev/a"}}, Encrypted: true,
			Uncarried: "<encryption> in its <source>",
		},
		`<disk type='block'><driver type='raw'/><source dev='/dev/a'><slices><slice type='storage' offset='0' size='4096'/></slices></source><backingStore/></disk>`: {
			Device: "disk", Chain: []hv.Image{{Type: hv.SourceBlock, Format: "raw", Path: "/dev/a", SliceBytes: 4096}}, Terminated: true,
		},
		`<disk type='file'><source file='/a'><slices><slice type='storage' offset='512' size='1'/></slices></source></disk>`: {
			Device: "disk", Chain: []hv.Image{file("", "/a")}, Slices: true, Uncarried: "<slices> in its <source>",
		},
		`<disk type='file'><source file='/a'/><backingStore type='file'><format type='qcow2'/><source file='/b'>
			<encryption format='luks'/></source></backingStore></disk>`: {
			Device: "disk", Chain: []hv.Image{file("", "/a"), file("qcow2", "/b")}, Encrypted: true,
			Uncarried: "<encryption> in its <source>",
		},
		`<disk type='file'><driver type='qcow2'/><source file='/a'/><encryption format='qcow'/></disk>`: {
			Device: "disk", Chain: []hv.Image{file("qcow2", "/a")}, Encrypted: true, Uncarried: "<encryption>",
		},
		`<disk type='file'><driver type='raw'><metadata_cache><max_size unit='bytes'>1</max_size></metadata_cache></driver><source file='/a'/></disk>`: {
			Device: "disk", Chain: []hv.Image{file("raw", "/a")}, ImageSetting: "<metadata_cache>",
		},
		`<disk type='file'><source file='/a'><seclabel model='dac' relabel='no'/></source></disk>`: {
			Device: "disk", Chain: []hv.Image{file("", "/a")}, ImageSetting: "<seclabel> in its <source>",
		},
		`<disk type='block'><source dev='/dev/a'><reservations managed='yes'/></source></disk>`: {
			Device: "disk", Chain: []hv.Image{{Type: hv.SourceBlock, Path: "/dev/a"}}, Uncarried: "<reservations> in its <source>",
		},
		`<disk type='file'><source file='/a'/><mirror type='file' job='copy' ready='abort'>
			<source file='/b'/></mirror></disk>`: {
			Device: "disk", Chain: []hv.Image{file("", "/a")}, Mirror: &hv.Mirror{Job: hv.JobCopy, Image: file("", "/b"), Ending: true},
		},
	} {
		got, err := ParseDomain("<domain><devices>"+doc+"</devices></domain>", nil, nil)
		if err != nil {
			t.Errorf("%s: %v", doc, err)
			continue
		}
		if diff := cmp.Diff([]hv.Disk{want}, got.Disks); diff != "" {
			t.Errorf("%s (-want +got):\n%s", doc, diff)
		}
	}
}

func TestRechainKeepsWhatItDoesNotKnow(t *testing.T) {
	doc := sample(t, "inactive-after-snapshot.xml")
	doc = strings.Replace(doc, "<target dev='vda' bus='virtio'/>",
		"<target dev='vda' bus='virtio' of_tomorrow='yes'/><element_of_tomorrow><x/></element_of_tomorrow>", 1)
	doc = strings.Replace(doc, "<driver name='qemu' type='qcow2' cache='none'",
		"<driver name='qemu' type='qcow2' of_tomorrow='1' cache='none'", 1)
	got, err := Rechain(doc, "vda", []hv.Image{
		file("qcow2", "/o & p"), {Type: hv.SourceBlock, Format: "raw", Path: "/dev/b"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`of_tomorrow="yes"`, "<element_of_tomorrow><x/></element_of_tomorrow>", `of_tomorrow="1"`, "<serial>ser-a</serial>",
		`<source file="/o &amp; p"/><backingStore type="block"><format type="raw"/><source dev="/dev/b"/><backingStore/></backingStore>`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "vdb") || strings.Count(got, "<source") != 2 {
		t.Errorf("more than the disk, or the old source:\n%s", got)
	}
}

func TestRechainFromBlockToFileLeavesNoOldSource(t *testing.T) {
	doc := `<domain><devices><disk type='block'><source dev='/dev/a' index='3' startupPolicy='optional'>
		<seclabel model='dac' relabel='no'/></source><target dev='vda'/></disk></devices></domain>`
	got, err := Rechain(doc, "vda", []hv.Image{file("raw", "/a")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParseDomain("<domain><devices>"+got+"</devices></domain>", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Disks[0]; len(d.Chain) != 1 || d.Top() != file("raw", "/a") || !d.Terminated {
		t.Errorf("disk = %+v", d)
	}
	for _, gone := range []string{"/dev/a", "index"} {
		if strings.Contains(got, gone) {
			t.Errorf("%s is left in %s", gone, got)
		}
	}
	for _, kept := range []string{"seclabel", "startupPolicy"} {
		if !strings.Contains(got, kept) {
			t.Errorf("%s is gone from %s", kept, got)
		}
	}
}

func TestSnapshotXMLNamesEveryDisk(t *testing.T) {
	p, err := ParseDomain(sample(t, "live-commit-ready.xml"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := SnapshotXML(p.Disks, "vda", file("qcow2", "/overlay"))
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"vdb", "sda", "hda"} {
		if !strings.Contains(doc, `name="`+other+`" snapshot="no"`) {
			t.Errorf("%s is not excluded in:\n%s", other, doc)
		}
	}
}

func TestCopyXMLStatesFormatAndEndOfChain(t *testing.T) {
	doc, err := CopyXML([]hv.Image{{Type: hv.SourceBlock, Format: "raw", Path: "/dev/dst"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`type="block"`, `type="raw"`, `dev="/dev/dst"`, "<backingStore></backingStore>"} {
		if !strings.Contains(doc, want) {
			t.Errorf("%s is missing in %s", want, doc)
		}
	}
	if _, err := CopyXML([]hv.Image{{Type: hv.SourceFile, Path: "/dst"}}, nil); !errors.Is(err, hv.ErrUnsupported) {
		t.Errorf("copyXML without a format = %v, want ErrUnsupported: libvirt would probe", err)
	}
}

func TestADomainHasIOThreadsHoweverTheyAreWritten(t *testing.T) {
	for xml, want := range map[string]bool{
		`<domain/>`: false,
		`<domain><iothreads>0</iothreads></domain>`:                                false,
		`<domain><iothreads>1</iothreads><devices/></domain>`:                      true,
		`<domain><iothreadids><iothread id='7'/></iothreadids><devices/></domain>`: true,
	} {
		got, err := ParseDomain(xml, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.IOThreads != want {
			t.Errorf("%s: %v, want %v", xml, got.IOThreads, want)
		}
	}
}
