// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"fmt"

	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

// SnapshotXML describes a snapshot of one disk. It excludes each other disk by name: libvirt would
// otherwise give that disk an overlay too.
func SnapshotXML(disks []hv.Disk, target string, overlay hv.Image) (string, error) {
	source, err := sourceOf(overlay, nil)
	if err != nil {
		return "", err
	}
	snap := libvirtxml.DomainSnapshot{Disks: &libvirtxml.DomainSnapshotDisks{}}
	for _, d := range disks {
		x := libvirtxml.DomainSnapshotDisk{Name: d.Target, Snapshot: "no"}
		if d.Target == target {
			x.Snapshot = "external"
			x.Driver = &libvirtxml.DomainDiskDriver{Type: overlay.Format}
			x.Source = source
		}
		snap.Disks.Disks = append(snap.Disks.Disks, x)
	}
	doc, err := snap.Marshal()
	if err != nil {
		return "", fmt.Errorf("write snapshot XML: %w", err)
	}
	return doc, nil
}

func sourceOf(img hv.Image, clusters rbd.Clusters) (*libvirtxml.DomainDiskSource, error) {
	if _, err := sourceAttr(img, clusters); err != nil {
		return nil, err
	}
	source := &libvirtxml.DomainDiskSource{Slices: slicesOf(img), Encryption: encryptionOf(img)}
	switch img.Type {
	case hv.SourceBlock:
		source.Block = &libvirtxml.DomainDiskSourceBlock{Dev: img.Path}
	case hv.SourceNetwork:
		source.Network = protocolAt(img.Path).source(img.Path, clusters)
	default:
		source.File = &libvirtxml.DomainDiskSourceFile{File: img.Path}
	}
	return source, nil
}

// CopyXML describes the destination of a copy with its backing images. The formats and the end of
// the chain are explicit: libvirt would otherwise probe content that a guest wrote.
func CopyXML(chain []hv.Image, clusters rbd.Clusters) (string, error) {
	dst := chain[0]
	source, err := sourceOf(dst, clusters)
	if err != nil {
		return "", err
	}
	disk := libvirtxml.DomainDisk{
		Driver:       &libvirtxml.DomainDiskDriver{Name: "qemu", Type: dst.Format},
		Source:       source,
		BackingStore: &libvirtxml.DomainDiskBackingStore{},
	}
	doc, err := disk.Marshal()
	if err != nil {
		return "", fmt.Errorf("write disk XML: %w", err)
	}
	if len(chain) == 1 {
		return doc, nil
	}
	return withChain(doc, chain, clusters)
}

// BackingName returns libvirt's name of the image directly below the top of a live disk.
func BackingName(domainXML, target string) (string, error) {
	var dom libvirtxml.Domain
	if err := dom.Unmarshal(domainXML); err != nil {
		return "", fmt.Errorf("parse domain XML: %w", err)
	}
	if dom.ID == nil {
		return "", hv.ErrNotActive
	}
	for _, d := range dom.Devices.Disks {
		if d.Target == nil || d.Target.Dev != target {
			continue
		}
		if d.BackingStore == nil || d.BackingStore.Index == 0 {
			return "", fmt.Errorf("%w: the disk has no backing image to commit into", hv.ErrUnsupported)
		}
		return fmt.Sprintf("%s[%d]", target, d.BackingStore.Index), nil
	}
	return "", fmt.Errorf("%w: no such disk", hv.ErrNotFound)
}
