// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"

	"github.com/beevik/etree"
	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
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
	edited, err := withBootDisk(doc, disk)
	if err != nil {
		return err
	}
	return c.modify(ctx, id, keptDefinitions, func(lv *golibvirt.Libvirt, _ golibvirt.Domain) error {
		_, err := lv.DomainDefineXMLFlags(edited, 0)
		return err
	})
}

// withBootDisk returns a domain's XML with the disk in it, and without the boot
// device that libvirt has added.
func withBootDisk(domainXML, diskXML string) (string, error) {
	doc, disk := etree.NewDocument(), etree.NewDocument()
	if err := doc.ReadFromString(domainXML); err != nil {
		return "", fmt.Errorf("parse domain XML: %w", err)
	}
	if err := disk.ReadFromString(diskXML); err != nil {
		return "", fmt.Errorf("parse disk XML: %w", err)
	}
	devices := doc.FindElement("/domain/devices")
	if devices == nil {
		return "", errors.New("the definition has no devices")
	}
	if err := dropOwnBoot(doc.Root()); err != nil {
		return "", err
	}
	devices.AddChild(disk.Root().Copy())
	text, err := doc.WriteToString()
	if err != nil {
		return "", fmt.Errorf("write domain XML: %w", err)
	}
	return text, nil
}

// dropOwnBoot takes out the boot device that libvirt has added to a definition, and
// that keeps devices with an order of their own from it. One that the owner chose
// is not ours to take, and where there is none something else is in the way.
func dropOwnBoot(domain *etree.Element) error {
	boots := domain.FindElements("os/boot")
	if len(boots) != 1 || boots[0].SelectAttrValue("dev", "") != "hd" {
		return fmt.Errorf("%w: the definition says itself what the domain boots from (<os><boot dev=.../></os>)", hv.ErrUnsupported)
	}
	boots[0].Parent().RemoveChild(boots[0])
	return nil
}
