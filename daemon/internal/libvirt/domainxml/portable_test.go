// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	gocmp "cmp"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
)

const webID = "5f6d9a53-0000-4000-8000-000000000001"

// portableXML is libvirt's definition of an ordinary UEFI guest. Tests replace EXTRA or DEVICE.
const portableXML = `<domain type='kvm'>
  <name>web</name>
  <uuid>` + webID + `</uuid>
  <description>/srv/notes says more</description>
  <metadata><app:owner xmlns:app="http://example.org/">/srv/somebody</app:owner></metadata>
  <memory unit='KiB'>262144</memory>
  <resource><partition>/machine</partition></resource>
  <os>
    <type arch='x86_64' machine='pc-q35-7.2'>hvm</type>
    <loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>
    <nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>/var/lib/libvirt/qemu/nvram/web_VARS.fd</nvram>
    <boot dev='hd'/>
  </os>
  <cpu mode='host-passthrough'/>EXTRA
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='none'/>
      <source file='/srv/pool/root.raw'/>
      <backingStore/>
      <target dev='vda' bus='virtio'/>
      <address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x0'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>
    <controller type='pci' index='0' model='pcie-root'/>
    <interface type='network'><source network='default'/><model type='virtio'/></interface>
    <serial type='pty'><target type='isa-serial' port='0'/></serial>
    <console type='pty'><target type='serial' port='0'/></console>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>
    <graphics type='vnc' port='-1' autoport='yes' passwd='secret'><listen type='address'/></graphics>
    <audio id='1' type='none'/>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    <memballoon model='virtio'/>DEVICE
  </devices>
</domain>`

func portable(extra, device string) string {
	return strings.NewReplacer("EXTRA", extra, "DEVICE", device).Replace(portableXML)
}

func TestWhatReachesIntoAHostIsNotPortable(t *testing.T) {
	doc, err := ParseDoc(portable("", ""))
	if err == nil {
		err = CheckPortable(doc.Root())
	}
	if err != nil {
		t.Fatalf("an ordinary guest: %v", err)
	}
	for name, text := range map[string]string{
		"QEMU options":               portable(`<qemu:commandline xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0"><qemu:arg value="-x"/></qemu:commandline>`, ""),
		"confinement":                portable(`<seclabel type='none'/>`, ""),
		"label of its own":           portable(`<seclabel type='dynamic'><baselabel>x</baselabel></seclabel>`, ""),
		"unconfined owner":           portable(`<seclabel type='dynamic' relabel='no'/>`, ""),
		"launch security":            portable(`<launchSecurity type='sev'/>`, ""),
		"partition":                  portable(`<resource><partition>/machine/../system</partition></resource>`, ""),
		"firmware variable":          portable(`<sysinfo type='fwcfg'><entry name='x' file='/etc/shadow'/></sysinfo>`, ""),
		"relative firmware variable": portable(`<sysinfo type='fwcfg'><entry name='x' file='etc/shadow'/></sysinfo>`, ""),
		"kernel": strings.Replace(portable("", ""), "<boot dev='hd'/>",
			"<kernel>/boot/vmlinuz</kernel>", 1),
		"loader": strings.Replace(portable("", ""), "/usr/share/OVMF/OVMF_CODE_4M.fd", "/srv/firmware.fd", 1),
		"loader by a detour": strings.Replace(portable("", ""), "/usr/share/OVMF/OVMF_CODE_4M.fd",
			"/usr/share/../../srv/firmware.fd", 1),
		"template":       strings.Replace(portable("", ""), "/usr/share/OVMF/OVMF_VARS_4M.fd", "/etc/shadow", 1),
		"NVRAM":          strings.Replace(portable("", ""), "/var/lib/libvirt/qemu/nvram/web_VARS.fd", "/etc/shadow", 1),
		"emulator":       strings.Replace(portable("", ""), "/usr/bin/qemu-system-x86_64", "/srv/evil", 1),
		"medium":         strings.Replace(portable("", ""), "<target dev='sda'", "<source file='/a.iso'/><target dev='sda'", 1),
		"device":         portable("", `<hostdev mode='subsystem' type='pci'/>`),
		"directory":      portable("", `<filesystem type='mount'><source dir='/'/><target dir='x'/></filesystem>`),
		"TPM":            portable("", `<tpm model='tpm-crb'><backend type='emulator'/></tpm>`),
		"console file":   portable("", `<serial type='file'><source path='/etc/passwd'/></serial>`),
		"console device": portable("", `<serial type='dev'><source path='/dev/ttyS0'/></serial>`),
		"console port":   portable("", `<serial type='tcp'><source mode='bind' host='0.0.0.0' service='1'/></serial>`),
		"console log":    portable("", `<serial type='pty'><log file='/etc/passwd'/></serial>`),
		"channel socket": portable("", `<channel type='unix'><source mode='connect' path='/run/docker.sock'/></channel>`),
		"channel socket of another guest": portable("",
			`<channel type='unix'><source mode='bind' path='/var/lib/libvirt/qemu/channel/target/domain-1-other/agent'/><target type='virtio' name='x'/></channel>`),
		"relative channel socket": portable("",
			`<channel type='unix'><source mode='connect' path='run/docker.sock'/><target type='virtio' name='x'/></channel>`),
		// libvirtd removes an existing file before it makes the socket.
		"relative console socket": portable("", `<serial type='unix'><source mode='bind' path='srv/pool/other.raw'/></serial>`),
		"randomness of a socket":  portable("", `<rng model='virtio'><backend model='egd' type='unix'><source mode='connect' path='x'/></backend></rng>`),
		"image behind a drive": strings.Replace(portable("", ""), "<target dev='sda'",
			"<backingStore type='file'><format type='raw'/><source file='/etc/shadow'/></backingStore><target dev='sda'", 1),
		"mirror of a drive": strings.Replace(portable("", ""), "<target dev='sda'",
			"<mirror type='file' file='/etc/shadow' format='raw'/><target dev='sda'", 1),
		"second source of a drive": strings.Replace(portable("", ""), "<target dev='sda'",
			"<source startupPolicy='optional'/><source file='/a.iso'/><target dev='sda'", 1),
		"disk in other devices": portable("<devices><disk type='file' device='disk'><source file='/etc/shadow'/><target dev='vdz'/></disk></devices>", ""),
		"tap script":            portable("", `<interface type='bridge'><script path='/bin/sh'/></interface>`),
		"relative tap script": portable("",
			`<interface type='bridge'><script path='evil'/></interface>`),
		"vhost user":   portable("", `<interface type='vhostuser'><source type='unix' path='/x' mode='client'/></interface>`),
		"network card": portable("", `<interface type='hostdev'/>`),
		"VNC socket":   portable("", `<graphics type='vnc' socket='/run/x'/>`),
		"input device": portable("", `<input type='evdev'><source dev='/dev/input/event0'/></input>`),
		"memory file":  portable("", `<memory model='nvdimm'><source><path>/etc/shadow</path></source></memory>`),
		"randomness":   portable("", `<rng model='virtio'><backend model='random'>/dev/sda</backend></rng>`),
		"text behind an instruction": strings.Replace(portable("", ""), "<boot dev='hd'/>",
			"<kernel><?a b?>/etc/shadow</kernel>", 1),
		"text behind a comment": strings.Replace(portable("", ""), "<boot dev='hd'/>",
			"<kernel><!-- a -->/etc/shadow</kernel>", 1),
		"text behind an element": strings.Replace(portable("", ""), "<boot dev='hd'/>",
			"<kernel><a/>/etc/shadow</kernel>", 1),
		"attribute of a document type": "<!DOCTYPE domain [<!ATTLIST source file CDATA '/etc/shadow'>]>" +
			strings.Replace(portable("", ""), "<target dev='sda'", "<source/><target dev='sda'", 1),
		"instruction before the root": "<?xml version='1.0' encoding='UTF-7'?>" + portable("", ""),
		"instruction in a memory device": portable("",
			`<memory model='nvdimm' access='shared'><source><path><?a b?>/etc/shadow</path></source></memory>`),
		"card of the host":      portable("", `<interface type='direct'><source dev='eth0' mode='passthrough'/></interface>`),
		"log of a user network": portable("", `<interface type='user'><backend type='passt' logFile='etc/x'/></interface>`),
		"randomness of a machine": portable("",
			`<rng model='virtio'><backend model='egd' type='tcp'><source mode='connect' host='example.org' service='1'/></backend></rng>`),
		"shared memory": portable("",
			`<shmem name='x'><model type='ivshmem-plain'/></shmem>`),
	} {
		doc, err := ParseDoc(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := gocmp.Or(checkPlain(doc), CheckPortable(doc.Root())); !errors.Is(err, hv.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
		if _, err := Localize(webID, hv.DomainDefinition{Domain: text}, nil, nil); !errors.Is(err, hv.ErrUnsupported) {
			t.Errorf("%s: may be defined: %v", name, err)
		}
	}
}

func TestADefinitionFromElsewhereIsMadeThisHosts(t *testing.T) {
	def := hv.DomainDefinition{Domain: portable("", ""), NVRAM: []byte("entries")}
	n, err := Localize(webID, def, []hv.DiskSpec{{
		Target: "vda", Image: hv.Image{Type: hv.SourceBlock, Format: "raw", Path: "/dev/vg/root"},
		Slot: `<disk type='file' device='disk'><driver name='qemu' type='qcow2' io='native'/>` +
			`<source file='/a' startupPolicy='optional'><seclabel model='dac' relabel='no'/></source>` +
			`<target dev='vda' bus='virtio'/><boot order='1'/><address type='pci' slot='0x09'/></disk>`,
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := ParseDoc(n.Doc)
	if err != nil {
		t.Fatal(err)
	}
	if n.Name != "web" || n.NVRAM != webID+"_VARS.fd" {
		t.Errorf("name %q, NVRAM %q", n.Name, n.NVRAM)
	}
	if _, file, _ := NVRAMElement(doc.Root()); file != NVRAMHome+n.NVRAM {
		t.Errorf("the definition has its NVRAM in %s: it may be another domain's", file)
	}
	for _, gone := range []string{"os/boot", "devices/emulator"} {
		if doc.Root().FindElement(gone) != nil {
			t.Errorf("<%s> is still there", gone)
		}
	}
	got, err := TextOf(FindDisk(doc, "vda"))
	if err != nil {
		t.Fatal(err)
	}
	want := `<disk type="block" device="disk"><driver name="qemu" type="raw" io="native"/>` +
		`<source startupPolicy="optional" dev="/dev/vg/root"><seclabel model="dac" relabel="no"/></source><backingStore/>` +
		`<target dev="vda" bus="virtio"/><boot order="1"/><address type="pci" slot="0x09"/></disk>`
	if diff := cmp.Diff(want, strings.ReplaceAll(got, "'", `"`)); diff != "" {
		t.Errorf("disk (-want +got):\n%s", diff)
	}
}

// A disk that was attached to a domain without its root may have got the root's address.
func TestOfTwoDisksWithOneAddressTheFirstKeepsIt(t *testing.T) {
	slot := func(target string) hv.DiskSpec {
		return hv.DiskSpec{
			Target: target, Image: hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/srv/" + target},
			Slot: `<disk type='file' device='disk'><driver name='qemu' type='raw'/><target dev='` + target + `' bus='virtio'/>` +
				`<address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x0'/></disk>`,
		}
	}
	n, err := Localize(webID, hv.DomainDefinition{Domain: portable("", "")}, []hv.DiskSpec{slot("vda"), slot("vdb")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := ParseDoc(n.Doc)
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]bool{"vda": true, "vdb": false} {
		if got := FindDisk(doc, target).SelectElement("address") != nil; got != want {
			t.Errorf("disk %s has an address: %t, want %t", target, got, want)
		}
	}
}

func TestTheBootDevicesOfTheOwnerStay(t *testing.T) {
	text := strings.Replace(portable("", ""), "<boot dev='hd'/>", "<boot dev='network'/><boot dev='hd'/>", 1)
	slot := `<disk device='disk'><target dev='vda' bus='virtio'/><boot order='1'/></disk>`
	image := hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/a"}
	_, err := Localize(webID, hv.DomainDefinition{Domain: text}, []hv.DiskSpec{{Target: "vda", Image: image, Slot: slot}}, nil)
	if !errors.Is(err, hv.ErrUnsupported) {
		t.Errorf("newDefinition = %v, want ErrUnsupported", err)
	}
}
