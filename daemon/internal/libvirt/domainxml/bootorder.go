// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"errors"
	"fmt"

	"github.com/beevik/etree"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// WithBootDisk adds the disk to a domain's XML, and removes the boot device that libvirt added.
func WithBootDisk(domainXML, diskXML string) (string, error) {
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

// dropOwnBoot removes the <boot dev='hd'/> that libvirt added to a definition: with it libvirt
// refuses a boot order of a device. It refuses a definition with other boot devices, or with none.
func dropOwnBoot(domain *etree.Element) error {
	boots := domain.FindElements("os/boot")
	if len(boots) != 1 || boots[0].SelectAttrValue("dev", "") != "hd" {
		return fmt.Errorf("%w: the definition says itself what the domain boots from (<os><boot dev=.../></os>)", hv.ErrUnsupported)
	}
	boots[0].Parent().RemoveChild(boots[0])
	return nil
}
