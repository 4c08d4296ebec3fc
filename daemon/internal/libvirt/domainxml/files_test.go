// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func TestEachFileThatADefinitionNamesIsFound(t *testing.T) {
	const doc = `<domain type='qemu'><name>web1</name><os>
		<loader readonly='yes' type='pflash'>/p/code.fd</loader>
		<nvram template='/p/vars.fd'>/p/web1_VARS.fd</nvram>
		<kernel>/p/vmlinuz</kernel><initrd>/p/initrd.img</initrd><dtb>/p/board.dtb</dtb>
		<acpi><table type='slic'>/p/slic.dat</table></acpi></os>
	<devices>
		<disk type='file' device='cdrom'><source file='/p/a.iso'/><target dev='sda' bus='sata'/></disk>
		<filesystem type='mount'><source dir='/p/share'/><target dir='share'/></filesystem>
		<serial type='file'><source path='/p/serial.txt'/><log file='/p/serial.log'/></serial>
		<console type='pty'><target type='serial' port='0'/></console>
		<channel type='unix'><source mode='bind' path='/run/agent'/><target type='virtio' name='a'/></channel>
		<tpm model='tpm-crb'><backend type='emulator'><source type='dir' path='/p/tpm'/></backend></tpm>
		<memory model='nvdimm'><source><path>/p/nvdimm</path></source><target><size unit='KiB'>1024</size></target></memory>
	</devices></domain>`
	d, err := ParseDomain(doc, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []hv.DomainFile{
		{What: "kernel", Path: "/p/vmlinuz"},
		{What: "initrd", Path: "/p/initrd.img"},
		{What: "dtb", Path: "/p/board.dtb"},
		{What: "loader", Path: "/p/code.fd"},
		{What: "nvram", Path: "/p/web1_VARS.fd"},
		{What: "nvram template", Path: "/p/vars.fd"},
		{What: "acpi table", Path: "/p/slic.dat"},
		{What: "tpm", Path: "/p/tpm"},
		{What: "memory", Path: "/p/nvdimm"},
		{What: "filesystem", Path: "/p/share"},
		{What: "serial", Path: "/p/serial.txt"},
		{What: "serial log", Path: "/p/serial.log"},
	}
	if !slices.Equal(d.Files, want) {
		t.Errorf("files = %+v\nwant %+v", d.Files, want)
	}
}
