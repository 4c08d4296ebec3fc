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
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

// poolSourcesIn looks up the images of the pool volumes that these descriptions of a domain name.
// It returns ErrUnavailable if a pool does not answer.
func (ds *domains) poolSourcesIn(ctx context.Context, docs ...string) (domainxml.PoolSources, error) {
	known := domainxml.PoolSources{}
	for _, doc := range docs {
		if !strings.Contains(doc, "type='volume'") { // few have one
			continue
		}
		var dom libvirtxml.Domain
		if err := dom.Unmarshal(doc); err != nil {
			return nil, fmt.Errorf("parse domain XML: %w", err)
		}
		var err error
		domainxml.EachSource(&dom, func(src *libvirtxml.DomainDiskSource) {
			name, is := domainxml.OfPool(src)
			if _, done := known[name]; !is || done || err != nil {
				return
			}
			var img hv.Image
			if img, err = ds.poolImage(ctx, name); err == nil {
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

// poolImage returns the image of a pool volume, from libvirt's present list of the pool. Except
// for ErrUnavailable, an error means that the pool has no such volume with a path on this host.
func (ds *domains) poolImage(ctx context.Context, name domainxml.PoolSource) (hv.Image, error) {
	s, err := ds.connection.poolReads(ctx)
	if err != nil {
		return hv.Image{}, err
	}
	img, err := call(ctx, s, func(lv *golibvirt.Libvirt) (hv.Image, error) {
		pool, err := lv.StoragePoolLookupByName(name.Pool)
		if err != nil {
			return hv.Image{}, err
		}
		vol, err := lv.StorageVolLookupByName(pool, name.Volume)
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
		return hv.Image{}, fmt.Errorf("look up %s in pool %s: %w", name.Volume, name.Pool, err)
	}
	return img, nil
}

var imageTypes = map[golibvirt.StorageVolType]string{golibvirt.StorageVolFile: hv.SourceFile, golibvirt.StorageVolBlock: hv.SourceBlock}
