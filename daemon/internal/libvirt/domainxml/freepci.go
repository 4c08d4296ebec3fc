// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// pciSlots are the slots that libvirt uses for disks on a PCI bus, by the model of the bus's
// controller. A PCI Express port takes one device.
var pciSlots = map[string]struct{ first, last uint }{
	"pci-root":                    {3, 31}, // the machine has those before, named or not
	"pci-bridge":                  {1, 31},
	"pcie-root-port":              {0, 0},
	"pcie-switch-downstream-port": {0, 0},
}

const pciExpress = "pcie-root"

type pciLayout struct {
	models map[uint]string
	taken  map[string]bool
}

func pciLayoutOf(domain string) (pciLayout, error) {
	l := pciLayout{map[uint]string{}, map[string]bool{}}
	var doc struct {
		Devices struct {
			All []struct {
				XMLName xml.Name
				Type    string                    `xml:"type,attr"`
				Model   string                    `xml:"model,attr"`
				Index   string                    `xml:"index,attr"`
				Address *libvirtxml.DomainAddress `xml:"address"`
			} `xml:",any"`
		} `xml:"devices"`
	}
	if err := xml.Unmarshal([]byte(domain), &doc); err != nil {
		return l, fmt.Errorf("parse domain XML: %w", err)
	}
	for _, d := range doc.Devices.All {
		l.take(addressOf(d.Address))
		if d.XMLName.Local != "controller" || d.Type != "pci" {
			continue
		}
		bus, err := strconv.ParseUint(d.Index, 10, 16)
		if err != nil {
			return l, fmt.Errorf("parse domain XML: PCI controller %q: %w", d.Index, err)
		}
		l.models[uint(bus)] = d.Model
	}
	return l, nil
}

func (l pciLayout) take(address string) {
	if slot, _, ok := strings.Cut(address, "."); ok && strings.HasPrefix(slot, "pci:") {
		l.taken[slot] = true
	}
}

func pciSlot(bus, slot uint) string { return fmt.Sprintf("pci:0000:%02x:%02x", bus, slot) }

func (l pciLayout) free() (bus, slot uint, ok bool) {
	for _, bus := range slices.Sorted(maps.Keys(l.models)) {
		model := l.models[bus]
		slots, ok := pciSlots[model]
		if !ok || l.models[0] == pciExpress && model == "pci-bridge" {
			continue // a disk there would not be a PCI Express device
		}
		for slot := slots.first; slot <= slots.last; slot++ {
			if !l.taken[pciSlot(bus, slot)] {
				return bus, slot, true
			}
		}
	}
	return 0, 0, false
}

// CheckPort refuses a disk for a running domain that has no free PCI Express port: libvirt adds
// ports only to a definition. It does not check a disk with an explicit address.
func CheckPort(live, disk string) error {
	d, err := ParseDisk(disk, nil)
	if err != nil || d.Bus != "virtio" || d.Address != "" {
		return err
	}
	l, err := pciLayoutOf(live)
	if err != nil || l.models[0] != pciExpress {
		return err
	}
	if _, _, ok := l.free(); ok {
		return nil
	}
	return fmt.Errorf("%w: the guest has no free PCI Express port; add ports to the definition (<controller type='pci' model='pcie-root-port'/>), which the guest has from its next start, or shut it down and attach then", hv.ErrUnsupported)
}

// freePCI chooses a PCI address for a new disk that no temporarily removed disk (away) has. If
// none of these has a PCI address it returns nil: libvirt chooses. If a PCI Express machine has no
// free port, freePCI chooses the next port, and libvirt adds it.
func freePCI(domain string, away []hv.Disk, mayGrow bool) (*etree.Element, error) {
	if !slices.ContainsFunc(away, func(d hv.Disk) bool { return strings.HasPrefix(d.Address, "pci:") }) {
		return nil, nil //nolint:nilnil // there is nothing to choose
	}
	l, err := pciLayoutOf(domain)
	if err != nil {
		return nil, err
	}
	onRoot := false
	for i := range away {
		l.take(away[i].Address)
		onRoot = onRoot || strings.HasPrefix(away[i].Address, "pci:0000:00:")
	}
	bus, slot, ok := l.free()
	if !ok {
		if !mayGrow || l.models[0] != pciExpress || onRoot {
			return nil, fmt.Errorf("%w: no PCI slot is free but those of disks that are to come back", hv.ErrUnsupported)
		}
		slot = 0
		for bus = slices.Max(slices.Collect(maps.Keys(l.models))) + 1; l.taken[pciSlot(bus, slot)]; {
			bus++
		}
	}
	return addressElement("type", "pci", "domain", "0x0000", "bus", fmt.Sprintf("0x%02x", bus),
		"slot", fmt.Sprintf("0x%02x", slot), "function", "0x0"), nil
}
