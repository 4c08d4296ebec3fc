// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

// isBootClash says that a disk with a boot order was refused because the
// definition has boot devices of the older kind. libvirt writes one of those,
// for the first disk, when the last device with an order is taken out: a root
// disk that was detached could not come back as it was.
func isBootClash(err error) bool {
	return saidText(err, "per-device boot elements cannot be used together with os/boot elements")
}

// defineWithDisk puts a disk with a boot order into a definition from which
// nothing but libvirt's own <boot dev='hd'/> keeps it. There is no call for that,
// so the whole definition is read and written; who edits it in the same moment
// may lose the edit.
func (c *Conn) defineWithDisk(ctx context.Context, id, disk string) error {
	s, err := c.changes()
	if err != nil {
		return err
	}
	dom, err := c.lookup(ctx, s, id)
	if err != nil {
		return err
	}
	doc, err := call(ctx, s, c.callTimeout, func(lv *golibvirt.Libvirt) (string, error) {
		// With the secrets, which would be gone otherwise.
		return lv.DomainGetXMLDesc(dom, golibvirt.DomainXMLInactive|golibvirt.DomainXMLSecure)
	})
	if err != nil {
		return err
	}
	edited, err := domainxml.WithBootDisk(doc, disk)
	if err != nil {
		return err
	}
	return c.modify(ctx, id, keptDefinitions, func(lv *golibvirt.Libvirt, _ golibvirt.Domain) error {
		_, err := lv.DomainDefineXMLFlags(edited, 0)
		return err
	})
}
