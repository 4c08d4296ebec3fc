// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"fmt"

	"github.com/beevik/etree"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// AllocAddress adds an address to a new <disk> of the domain, if libvirt's choice, the first free
// address of the definition, could belong to a reserved (temporarily removed) disk. mayGrow
// permits an address on a new port, which libvirt then adds.
func AllocAddress(domain, disk string, reserved []string, mayGrow bool) (string, error) {
	d, err := ParseDisk(disk, nil)
	if err != nil {
		return "", err
	}
	away := make([]hv.Disk, 0, len(reserved))
	for _, text := range reserved {
		other, err := ParseDisk(text, nil)
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
	return TextOf(doc.Root())
}

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
