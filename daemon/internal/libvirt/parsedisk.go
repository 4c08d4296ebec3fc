// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// ParseDisk implements hv.Hypervisor.
func (*Conn) ParseDisk(definition string) (hv.Disk, error) { return parseDisk(definition) }

func parseDisk(definition string) (hv.Disk, error) {
	var x libvirtxml.DomainDisk
	if err := x.Unmarshal(definition); err != nil {
		return hv.Disk{}, fmt.Errorf("parse disk XML: %w", err)
	}
	doc := etree.NewDocument()
	if err := doc.ReadFromString(definition); err != nil || doc.Root() == nil {
		return hv.Disk{}, fmt.Errorf("parse disk XML: %w", err)
	}
	d := diskOf(&x)
	d.Uncarried = uncarried(doc.Root()) // of the text, which has more than x
	return d, nil
}
