// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	"github.com/beevik/etree"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// libvirt gives a new disk the first address that its definition leaves free. That of
// a disk which is only away for a while is free there. So where there are such disks
// the address is chosen here, and stated.

// addressBesideReserved returns the new <disk> with an address that none of the reserved
// disks has.
func (c *Conn) addressBesideReserved(ctx context.Context, id string, where hv.Where, disk string, reserved []string) (string, error) {
	domain, err := c.describedXML(ctx, id, where)
	if err != nil {
		return "", err
	}
	return allocAddress(domain, disk, reserved, where == hv.Config)
}

// allocAddress is addressBesideReserved for a domain with this XML. MayGrow says that libvirt
// can give it another port for the disk.
func allocAddress(domain, disk string, reserved []string, mayGrow bool) (string, error) {
	d, err := parseDisk(disk)
	if err != nil {
		return "", err
	}
	away := make([]hv.Disk, 0, len(reserved))
	for _, text := range reserved {
		other, err := parseDisk(text)
		if err == nil {
			err = checkBeside(&d, &other)
		}
		if err != nil {
			return "", fmt.Errorf("reserved disk: %w", err)
		}
		away = append(away, other)
	}
	if d.Address != "" {
		return disk, nil
	}
	var address *etree.Element
	switch d.Bus {
	case "virtio":
		address, err = freePCI(domain, away, mayGrow)
	case "scsi":
		address, err = freeSCSI(domain, away, d.Target)
	}
	if err != nil || address == nil {
		return disk, err
	}
	doc := etree.NewDocument()
	if err := doc.ReadFromString(disk); err != nil {
		return "", fmt.Errorf("parse disk XML: %w", err)
	}
	doc.Root().AddChild(address)
	return textOf(doc.Root())
}

// checkBeside refuses a disk that wants what a reserved one had.
func checkBeside(d, other *hv.Disk) error {
	switch {
	case d.Target == other.Target:
		return fmt.Errorf("%w: it has the target %s", hv.ErrExists, d.Target)
	case d.SamePlace(other):
		return fmt.Errorf("%w: it has the address %s", hv.ErrExists, d.Address)
	case d.BootOrder != 0 && d.BootOrder == other.BootOrder:
		return fmt.Errorf("%w: it has the boot order %d", hv.ErrUnsupported, d.BootOrder)
	}
	return nil
}
