// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// A disk of type volume names its image by a pool and a name in it. libvirt looks up the
// path when the domain starts, and so is it done here: everybody else sees the image. A
// definition that is written here names the path.

// poolSource is the pool and the name in it that a <source> has.
type poolSource struct{ pool, volume string }

// poolSources are the images of pool sources. One that is not in it is not known: its pool
// is not active, or has no such volume, or none that is a file or device of this host.
type poolSources map[poolSource]hv.Image

// ofPool returns what a source says of a pool; false if it names no volume of one. With
// a mode the volume is reached by QEMU alone, without a path.
func ofPool(src *libvirtxml.DomainDiskSource) (poolSource, bool) {
	if src == nil || src.Volume == nil || src.Volume.Mode != "" {
		return poolSource{}, false
	}
	return poolSource{src.Volume.Pool, src.Volume.Volume}, true
}

// eachSource calls do with every source of the disks of a domain.
func eachSource(dom *libvirtxml.Domain, do func(*libvirtxml.DomainDiskSource)) {
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

// resolve puts the images in the place of pool sources.
func (known poolSources) resolve(dom *libvirtxml.Domain) {
	eachSource(dom, func(src *libvirtxml.DomainDiskSource) {
		name, is := ofPool(src)
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

// poolSourcesIn looks up the pool sources of descriptions of a domain. ErrUnavailable if
// a pool does not answer.
func (c *Conn) poolSourcesIn(ctx context.Context, docs ...string) (poolSources, error) {
	known := poolSources{}
	for _, doc := range docs {
		if !strings.Contains(doc, "type='volume'") { // few have one
			continue
		}
		var dom libvirtxml.Domain
		if err := dom.Unmarshal(doc); err != nil {
			return nil, fmt.Errorf("parse domain XML: %w", err)
		}
		var err error
		eachSource(&dom, func(src *libvirtxml.DomainDiskSource) {
			name, is := ofPool(src)
			if _, done := known[name]; !is || done || err != nil {
				return
			}
			var img hv.Image
			if img, err = c.poolImage(ctx, name); err == nil {
				known[name] = img
			} else if !errors.Is(err, hv.ErrUnavailable) { // libvirt has none
				err = nil
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return known, nil
}

// poolImage is the image that a pool has by a name, by libvirt's present list of the pool.
// An error but ErrUnavailable means that it has none that has a path on this host.
func (c *Conn) poolImage(ctx context.Context, name poolSource) (hv.Image, error) {
	s, err := c.poolReads(ctx)
	if err != nil {
		return hv.Image{}, err
	}
	img, err := call(ctx, s, c.callTimeout, func(lv *golibvirt.Libvirt) (hv.Image, error) {
		pool, err := lv.StoragePoolLookupByName(name.pool)
		if err != nil {
			return hv.Image{}, err
		}
		vol, err := lv.StorageVolLookupByName(pool, name.volume)
		if err != nil {
			return hv.Image{}, err
		}
		kind, _, _, err := lv.StorageVolGetInfo(vol)
		if err != nil {
			return hv.Image{}, err
		}
		img := hv.Image{Type: imageTypes[golibvirt.StorageVolType(kind)]}
		img.Path, err = lv.StorageVolGetPath(vol)
		return img, err
	})
	if err == nil && img.Type == "" {
		err = fmt.Errorf("%w: it is no file and no device", hv.ErrNotFound)
	}
	if err != nil {
		return hv.Image{}, fmt.Errorf("look up %s in pool %s: %w", name.volume, name.pool, err)
	}
	return img, nil
}

// imageTypes are the types of images that the volumes of pools are.
var imageTypes = map[golibvirt.StorageVolType]string{golibvirt.StorageVolFile: hv.SourceFile, golibvirt.StorageVolBlock: hv.SourceBlock}
