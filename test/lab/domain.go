// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/volferry/volferry/test/lab/workload"
)

// GuestConfig describes a guest. The zero value of every field but Name and
// Disks is a good one.
type GuestConfig struct {
	Name    string // short: it is part of the path of a unix socket
	UUID    string // libvirt makes one up
	Machine string // QEMU's machine type; default pc
	Disks   []Disk // vda, vdb and so on
	// UEFI: the guest boots from its first disk, one of MakeBootVolume, with a boot
	// order. Nothing in its definition is this host's: it has no file for its console,
	// and its sockets are where libvirt puts them.
	UEFI bool
	// CanSleep: the machine of the guest has the sleep state S3.
	CanSleep bool
	// Unconfined: AppArmor does not confine the guest, where it confines others.
	Unconfined bool
	// KeptInCrash: QEMU hears of a panic of the guest's kernel, and libvirt keeps the process.
	KeptInCrash bool
}

// Disk is a disk of a guest.
type Disk struct {
	Volume
	Serial    string
	Shareable bool
	IOThread  bool // gives the disk a thread of its own in QEMU
	// Cache is the cache mode, empty for none.
	Cache string
	// Pool: the definition names the volume by this pool and its name there, not by its path.
	Pool string
	// Export, if not nil, is the server that the guest has the volume from. Its image is at Path.
	Export *Export
	// RBD, if not nil, is the image that the guest has the volume from; Path is its address.
	RBD *RBDImage
	// OpenEnd: the definition does not say where the chain of the disk ends, so that libvirt
	// follows the header of its image.
	OpenEnd bool
	// Fill is what MakeVolume was told.
	Fill Fill
	// Part is the part of the volume that the writer keeps to, of Parts equal
	// ones; 0 parts is the whole volume.
	Part, Parts uint64
	// Interleaved: the parts are not one behind the other; each has every block of its number
	// among so many.
	Interleaved bool
	// Seed of the operations of the writer; two disks have different ones.
	Seed uint64
	// Mix of the operations; the zero value is workload.DefaultMix.
	Mix workload.Mix
}

// target is the name of a guest's disk by its position.
func target(position int) string { return "vd" + string(rune('a'+position)) }

// domainTemplate has type qemu (TCG): the machines that run the tests have no
// hardware virtualisation that is worth the name.
var domainTemplate = template.Must(template.New("domain").Parse(`<domain type='qemu'>
  <name>{{html .Name}}</name>
{{- if .UUID}}
  <uuid>{{html .UUID}}</uuid>{{end}}
  <memory unit='MiB'>256</memory>
  <vcpu>1</vcpu>
{{- if .IOThreads}}
  <iothreads>{{.IOThreads}}</iothreads>{{end}}
  <os>
    <type arch='x86_64' machine='{{html .Machine}}'>hvm</type>
{{- if .UEFI}}
    <loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>
    <nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>/var/lib/libvirt/qemu/nvram/{{html .Name}}_VARS.fd</nvram>
{{- else}}
    <kernel>{{html .Boot.Kernel}}</kernel>
    <initrd>{{html .Boot.Initrd}}</initrd>
    <cmdline>{{html .KernelOptions}}</cmdline>
{{- end}}
  </os>
  <features><acpi/></features>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>{{if .KeptInCrash}}preserve{{else}}destroy{{end}}</on_crash>
{{- if .CanSleep}}
  <pm><suspend-to-mem enabled='yes'/></pm>{{end}}
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
{{- range $n, $disk := .Disks}}
    <disk type='{{.Type}}' device='disk'>
      <driver name='qemu' type='{{html .Format}}' cache='{{or .Cache "none"}}' discard='unmap'{{if .Thread}} iothread='{{.Thread}}'{{end}}/>
{{- if .RBD}}
      <source protocol='rbd' name='{{html .RBD.Spec}}'><host name='{{.RBD.Host}}' port='{{.RBD.Port}}'/></source>
      <auth username='{{.RBD.User}}'><secret type='ceph' uuid='{{.RBD.Secret}}'/></auth>
{{- else if .Export}}
      <source protocol='nbd' name='{{html .Export.Name}}'>{{if .Export.Server}}<host name='{{.Export.Host}}' port='{{.Export.Port}}'/>{{else}}<host transport='unix' socket='{{html .Export.Socket}}'/>{{end}}</source>
{{- else}}
      <source {{if .Pool}}pool='{{html .Pool}}' volume='{{html .Name}}'{{else}}{{.SourceAttr}}='{{html .Path}}'{{end}}>
{{- if .LUKS}}<encryption format='luks'><secret type='passphrase' uuid='{{.LUKS.Secret}}'/></encryption>{{end}}</source>
{{- end}}
{{- if not .OpenEnd}}
      <backingStore/>{{end}}
      <target dev='{{.Target}}' bus='virtio'/>
{{- if .Shareable}}
      <shareable/>{{end}}
{{- if .Serial}}
      <serial>{{html .Serial}}</serial>{{end}}
{{- if and $.UEFI (eq $n 0)}}
      <boot order='1'/>{{end}}
    </disk>
{{- end}}
    <controller type='usb' model='none'/>
    <channel type='unix'>
{{- if not .UEFI}}
      <source mode='bind' path='{{html .Socket}}'/>{{end}}
      <target type='virtio' name='` + workload.Port + `'/>
    </channel>
{{- if .UEFI}}
    <serial type='pty'/>
{{- else}}
    <serial type='file'>
      <source path='{{html .Console}}'/>
    </serial>
{{- end}}
    <memballoon model='none'/>
{{- if .KeptInCrash}}
    <panic model='isa'/>{{end}}
  </devices>
{{- if .Unconfined}}
  <seclabel type='none' model='apparmor'/>{{end}}
</domain>
`))

type domainDisk struct {
	Disk
	Type, SourceAttr, Target string
	Name                     string // in its pool
	Thread                   int
}

// domainXML renders the definition of a guest, whose files begin with base.
func (c *Connection) domainXML(cfg GuestConfig, boot Boot, base string) ([]byte, error) {
	data := struct {
		GuestConfig
		Boot            Boot
		KernelOptions   string
		Socket, Console string
		IOThreads       int
		Disks           []domainDisk
	}{GuestConfig: cfg, KernelOptions: kernelOptions, Socket: base + ".sock", Console: base + ".console"}
	if !cfg.UEFI { // which has its kernel on a disk
		var err1, err2 error
		data.Boot.Kernel, err1 = c.lend(boot.Kernel)
		data.Boot.Initrd, err2 = c.lend(boot.Initrd)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
	}
	if data.Machine == "" {
		data.Machine = "pc"
	}
	for i, d := range cfg.Disks {
		disk := domainDisk{Disk: d, Type: "file", SourceAttr: "file", Target: target(i)}
		if d.RBD == nil {
			info, err := os.Stat(c.here(d.Path))
			if err != nil {
				return nil, fmt.Errorf("inspect disk: %w", err)
			}
			if info.Mode()&os.ModeDevice != 0 {
				disk.Type, disk.SourceAttr = "block", "dev"
			}
		}
		if d.Export != nil || d.RBD != nil {
			disk.Type = "network"
		}
		if d.Pool != "" {
			disk.Type, disk.Name = "volume", filepath.Base(d.Path)
		}
		if d.IOThread {
			data.IOThreads++
			disk.Thread = data.IOThreads
		}
		data.Disks = append(data.Disks, disk)
	}
	var xml bytes.Buffer
	if err := domainTemplate.Execute(&xml, data); err != nil {
		return nil, fmt.Errorf("render domain: %w", err)
	}
	return xml.Bytes(), nil
}
