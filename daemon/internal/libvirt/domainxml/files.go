// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// filesOf returns the files and directories that a domain names besides its disks, with the
// element of the definition that names each.
func filesOf(dom *libvirtxml.Domain) []hv.DomainFile {
	var found domainFiles
	if dom.OS != nil {
		found.ofOS(dom.OS)
	}
	if dom.Devices != nil {
		found.ofDevices(dom.Devices)
	}
	return found
}

type domainFiles []hv.DomainFile

// add keeps a file; an element without one has the empty path.
func (f *domainFiles) add(what, path string) {
	if path != "" {
		*f = append(*f, hv.DomainFile{What: what, Path: path})
	}
}

func (f *domainFiles) ofOS(os *libvirtxml.DomainOS) {
	f.add("kernel", os.Kernel)
	f.add("initrd", os.Initrd)
	f.add("dtb", os.DTB)
	f.add("shim", os.Shim)
	if os.Loader != nil {
		f.add("loader", os.Loader.Path)
	}
	if os.NVRam != nil {
		f.add("nvram", os.NVRam.NVRam)
		f.add("nvram template", os.NVRam.Template)
		if src := os.NVRam.Source; src != nil && src.File != nil {
			f.add("nvram", src.File.File)
		}
	}
	if os.VarStore != nil {
		f.add("varstore", os.VarStore.Path)
		f.add("varstore template", os.VarStore.Template)
	}
	if os.ACPI != nil {
		for _, t := range os.ACPI.Tables {
			f.add("acpi table", t.Path)
		}
	}
}

func (f *domainFiles) ofDevices(d *libvirtxml.DomainDeviceList) {
	for _, t := range d.TPMs {
		if t.Backend == nil || t.Backend.Emulator == nil || t.Backend.Emulator.Source == nil {
			continue
		}
		if src := t.Backend.Emulator.Source; src.File != nil {
			f.add("tpm", src.File.Path)
		} else if src.Dir != nil {
			f.add("tpm", src.Dir.Path)
		}
	}
	for _, m := range d.Memorydevs {
		if m.Source != nil {
			f.add("memory", m.Source.Path)
		}
	}
	for _, fs := range d.Filesystems {
		if fs.Source != nil && fs.Source.Mount != nil {
			f.add("filesystem", fs.Source.Mount.Dir)
		}
	}
	for _, c := range d.Serials {
		f.ofChardev("serial", c.Source, c.Log)
	}
	for _, c := range d.Parallels {
		f.ofChardev("parallel", c.Source, c.Log)
	}
	for _, c := range d.Consoles {
		f.ofChardev("console", c.Source, c.Log)
	}
	for _, c := range d.Channels {
		f.ofChardev("channel", c.Source, c.Log)
	}
}

func (f *domainFiles) ofChardev(what string, src *libvirtxml.DomainChardevSource, log *libvirtxml.DomainChardevLog) {
	if src != nil && src.File != nil {
		f.add(what, src.File.Path)
	}
	if src != nil && src.Pipe != nil {
		f.add(what, src.Pipe.Path)
	}
	if log != nil {
		f.add(what+" log", log.File)
	}
}
