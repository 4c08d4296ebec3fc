// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

// isBootClash reports whether a disk with a boot order was refused because the definition has boot
// devices of the older kind. libvirt adds one for the first disk when the last device with a boot
// order is removed; a detached root disk could then not be attached again.
func isBootClash(err error) bool {
	return saidText(err, "per-device boot elements cannot be used together with os/boot elements")
}

// defineWithDisk adds a disk with a boot order to a definition if only libvirt's own <boot
// dev='hd'/> prevents that. libvirt has no call for it: the whole definition is read and written,
// and a concurrent edit may be lost.
func (p *plug) defineWithDisk(ctx context.Context, id, disk string) error {
	s, err := p.connection.changes()
	if err != nil {
		return err
	}
	dom, err := lookup(ctx, s, id)
	if err != nil {
		return err
	}
	doc, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
		// Without SECURE the secrets would be lost.
		return lv.DomainGetXMLDesc(dom, golibvirt.DomainXMLInactive|golibvirt.DomainXMLSecure)
	})
	if err != nil {
		return err
	}
	edited, err := domainxml.WithBootDisk(doc, disk)
	if err != nil {
		return err
	}
	return p.calls.modify(ctx, id, keptDefinitions, func(lv *golibvirt.Libvirt, _ golibvirt.Domain) error {
		_, err := lv.DomainDefineXMLFlags(edited, 0)
		return err
	})
}
