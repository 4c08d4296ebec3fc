// SPDX-License-Identifier: Apache-2.0

package domainfiles

import (
	"slices"
	"testing"
)

func TestEachFileThatADefinitionNamesIsFound(t *testing.T) {
	const doc = `<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>/p/no</name><description>/p/no</description>
	<metadata><a:b xmlns:a='urn:a'>/p/no</a:b></metadata>
	<sysinfo type='fwcfg'><entry name='opt/com.coreos/config' file='/p/web1.ign'/></sysinfo>
	<os>
		<loader readonly='yes' type='pflash'>/p/code.fd</loader>
		<nvram template='/p/vars.fd'>/p/web1_VARS.fd</nvram>
		<kernel>/p/vmlinuz</kernel><initrd>/p/initrd.img</initrd><dtb>/p/board.dtb</dtb>
		<acpi><table type='slic'>/p/slic.dat</table></acpi></os>
	<devices>
		<emulator>/p/no</emulator>
		<disk type='file' device='cdrom'><source file='/p/a.iso'/><target dev='sda' bus='sata'/></disk>
		<disk type='file'><source file='/p/top.qcow2'><dataStore type='file'><source file='/p/top.data'/></dataStore></source>
			<backingStore type='file'><source file='/p/base.qcow2'/><backingStore/></backingStore>
			<mirror type='file' file='/p/copy.raw' job='copy'><source file='/p/copy.raw'/></mirror><target dev='vda'/></disk>
		<disk type='volume' device='disk'><source pool='p' volume='web'/><target dev='vdb'/></disk>
		<disk type='dir' device='floppy'><source dir='/p/floppy'/><target dev='fda'/></disk>
		<filesystem type='mount'><source dir='/p/share'/><target dir='share'/></filesystem>
		<filesystem type='file'><source file='/p/fs.img'/><target dir='img'/></filesystem>
		<interface type='user'><rom file='/p/nic.rom'/></interface>
		<serial type='file'><source path='/p/serial.txt'/><log file='/p/serial.log'/></serial>
		<console type='pty'><target type='serial' port='0'/></console>
		<tpm model='tpm-crb'><backend type='emulator'><source type='dir' path='/p/tpm'/></backend></tpm>
		<smartcard mode='host-certificates'><certificate>a</certificate><database>/p/nss</database></smartcard>
		<memory model='nvdimm'><source><path>/p/nvdimm</path></source><target><size unit='KiB'>1024</size></target></memory>
	</devices>
	<qemu:commandline><qemu:arg value='-drive'/><qemu:arg value='file=/p/raw.img,if=none'/></qemu:commandline></domain>`
	got, err := Named(doc)
	if err != nil {
		t.Fatal(err)
	}
	want := []File{
		{What: "sysinfo", Path: "/p/web1.ign"},
		{What: "loader", Path: "/p/code.fd"},
		{What: "nvram template", Path: "/p/vars.fd"},
		{What: "nvram", Path: "/p/web1_VARS.fd"},
		{What: "kernel", Path: "/p/vmlinuz"},
		{What: "initrd", Path: "/p/initrd.img"},
		{What: "dtb", Path: "/p/board.dtb"},
		{What: "acpi table", Path: "/p/slic.dat"},
		{What: "cdrom sda", Path: "/p/a.iso"},
		{What: "disk vda", Path: "/p/top.qcow2"},
		{What: "disk vda", Path: "/p/top.data"},
		{What: "disk vda", Path: "/p/base.qcow2"},
		{What: "disk vda", Path: "/p/copy.raw"},
		{What: "disk vdb", Path: "web", Pool: "p"},
		{What: "floppy fda", Path: "/p/floppy"},
		{What: "filesystem", Path: "/p/share"},
		{What: "filesystem", Path: "/p/fs.img"},
		{What: "interface", Path: "/p/nic.rom"},
		{What: "serial", Path: "/p/serial.txt"},
		{What: "serial log", Path: "/p/serial.log"},
		{What: "tpm", Path: "/p/tpm"},
		{What: "smartcard", Path: "/p/nss"},
		{What: "memory", Path: "/p/nvdimm"},
		{What: "commandline", Path: "/p/raw.img"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("files = %+v\nwant %+v", got, want)
	}
}

func TestTextAroundADefinitionNamesNothing(t *testing.T) {
	for _, doc := range []string{"/p/before<domain/>", "<domain/>/p/behind", "/p/alone"} {
		if got, err := Named(doc); err != nil || len(got) > 0 {
			t.Errorf("%q: %+v, %v", doc, got, err)
		}
	}
}

func TestADefinitionThatIsNoXMLIsAnError(t *testing.T) {
	if _, err := Named("<domain><devices>"); err == nil {
		t.Error("no error")
	}
}
