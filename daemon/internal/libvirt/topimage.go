// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

func (ds *domains) TopImage(ctx context.Context, id, target string) (string, error) {
	path, err := ds.topImage(ctx, id, target)
	if err != nil {
		return "", fmt.Errorf("read the top image of %s: %w", nameOf(id, target), err)
	}
	return path, nil
}

func (ds *domains) topImage(ctx context.Context, id, target string) (string, error) {
	s, err := ds.connection.reads()
	if err != nil {
		return "", err
	}
	dom, err := handle(id)
	if err != nil {
		return "", err
	}
	if s.silent.has(id) {
		return "", fmt.Errorf("%w: libvirt has not answered the last question about it yet", hv.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, ds.listedTimeout)
	defer cancel()
	xml, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
		defer s.silent.while(ctx, id)()
		return lv.DomainGetXMLDesc(dom, 0)
	})
	if err != nil {
		return "", err
	}
	known, err := ds.poolSourcesIn(ctx, xml)
	if err != nil {
		return "", err
	}
	d, err := domainxml.ParseDomain(xml, known, ds.clusters)
	if err != nil {
		return "", err
	}
	for i := range d.Disks {
		if d.Disks[i].Target == target {
			return d.Disks[i].Top().Path, nil
		}
	}
	return "", hv.ErrNotFound
}
