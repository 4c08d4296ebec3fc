// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	"github.com/beevik/etree"
	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

// modifyFlag returns libvirt's flag for a description. Without a flag libvirt would use the live
// one, or the definition of a domain that is off.
func modifyFlag(where hv.Where) (golibvirt.DomainDeviceModifyFlags, error) {
	switch where {
	case hv.Live:
		return golibvirt.DomainDeviceModifyLive, nil
	case hv.Config:
		return golibvirt.DomainDeviceModifyConfig, nil
	}
	return 0, fmt.Errorf("%w: description %q of a domain", hv.ErrUnsupported, where)
}

func (ds *domains) describedXML(ctx context.Context, id string, where hv.Where) (string, error) {
	if _, err := modifyFlag(where); err != nil {
		return "", err
	}
	s, dom, err := ds.find(ctx, id)
	if err != nil {
		return "", err
	}
	if where == hv.Live {
		return liveXML(ctx, s, dom)
	}
	return configXML(ctx, s, dom)
}

// liveXML reads the description of a domain's process. libvirt would return the definition of a
// domain that is off.
func liveXML(ctx context.Context, s *session, dom golibvirt.Domain) (string, error) {
	doc, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) { return lv.DomainGetXMLDesc(dom, 0) })
	if err != nil {
		return "", err
	}
	p, err := domainxml.ParseDomain(doc, nil, nil)
	if err == nil && !p.Active {
		err = hv.ErrNotActive
	}
	return doc, err
}

// configXML reads the persistent definition. libvirt would return the live description of a
// transient domain.
func configXML(ctx context.Context, s *session, dom golibvirt.Domain) (string, error) {
	return definitionXML(ctx, s, dom, 0)
}

func definitionXML(ctx context.Context, s *session, dom golibvirt.Domain, flags golibvirt.DomainXMLFlags) (string, error) {
	doc, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
		persistent, err := lv.DomainIsPersistent(dom)
		if err != nil || persistent == 0 {
			return "", err
		}
		return lv.DomainGetXMLDesc(dom, golibvirt.DomainXMLInactive|flags)
	})
	if err == nil && doc == "" {
		err = fmt.Errorf("%w: the domain is transient", hv.ErrUnsupported)
	}
	return doc, err
}

func (ds *domains) diskElement(ctx context.Context, id string, where hv.Where, target string) (*etree.Element, error) {
	text, err := ds.describedXML(ctx, id, where)
	if err != nil {
		return nil, err
	}
	doc := etree.NewDocument()
	if err := doc.ReadFromString(text); err != nil {
		return nil, fmt.Errorf("parse domain XML: %w", err)
	}
	disk := domainxml.FindDisk(doc, target)
	if disk == nil {
		return nil, fmt.Errorf("%w: no such disk", hv.ErrNotFound)
	}
	return disk, nil
}
