// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// libvirt looks up the path of a disk of type volume when the domain starts, and so does this
// package. A definition that Volferry writes has the path.

// PoolSource is the pool and the volume name in a <source>.
type PoolSource struct{ Pool, Volume string }

// PoolSources maps pool sources to images. It lacks a source if its pool is not active or has no
// such volume, or the volume is no file or device of this host.
type PoolSources map[PoolSource]hv.Image

// OfPool returns the pool and volume of a source. It returns false if the source has none, or has
// a mode: then QEMU reaches the volume without a path.
func OfPool(src *libvirtxml.DomainDiskSource) (PoolSource, bool) {
	if src == nil || src.Volume == nil || src.Volume.Mode != "" {
		return PoolSource{}, false
	}
	return PoolSource{src.Volume.Pool, src.Volume.Volume}, true
}

// EachSource calls do with every source of a domain's disks.
func EachSource(dom *libvirtxml.Domain, do func(*libvirtxml.DomainDiskSource)) {
	if dom.Devices == nil {
		return
	}
	for i := range dom.Devices.Disks {
		disk := &dom.Devices.Disks[i]
		do(disk.Source)
		for b := disk.BackingStore; b != nil; b = b.BackingStore {
			do(b.Source)
		}
		if disk.Mirror != nil {
			do(disk.Mirror.Source)
		}
	}
}

func (known PoolSources) resolve(dom *libvirtxml.Domain) {
	EachSource(dom, func(src *libvirtxml.DomainDiskSource) {
		name, is := OfPool(src)
		img, found := known[name]
		if !is || !found {
			return
		}
		labels := src.Volume.SecLabel
		src.Volume = nil
		if img.Type == hv.SourceBlock {
			src.Block = &libvirtxml.DomainDiskSourceBlock{Dev: img.Path, SecLabel: labels}
			return
		}
		src.File = &libvirtxml.DomainDiskSourceFile{File: img.Path, SecLabel: labels}
	})
}
