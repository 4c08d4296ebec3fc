// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/beevik/etree"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// scsiUnits is how many units of a SCSI controller libvirt assigns to disks by name: sda is the
// first unit of the first controller, sdh of the second.
const scsiUnits = 7

// freeSCSI chooses an address for a new SCSI disk that no disk of the domain and no temporarily
// removed disk (away) has. It returns nil if libvirt's choice, the address that belongs to the
// disk's name, is free.
func freeSCSI(domain string, away []hv.Disk, target string) (*etree.Element, error) {
	n, ok := diskNumber(target)
	if !ok {
		return nil, fmt.Errorf("%w: a SCSI disk cannot be called %q", hv.ErrUnsupported, target)
	}
	controller := n / scsiUnits
	at := func(unit int) func(hv.Disk) bool {
		place := hv.Disk{Bus: "scsi", Address: fmt.Sprintf("drive:%d:0:0:%d", controller, unit)}
		return func(d hv.Disk) bool { return d.SamePlace(&place) }
	}
	p, err := ParseDomain(domain, nil, nil)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(p.Disks, away)
	if !slices.ContainsFunc(all, at(n%scsiUnits)) {
		return nil, nil //nolint:nilnil // there is nothing to choose
	}
	for unit := range scsiUnits {
		if !slices.ContainsFunc(all, at(unit)) {
			return addressElement("type", "drive", "controller", strconv.Itoa(controller), "bus", "0", "target", "0", "unit", strconv.Itoa(unit)), nil
		}
	}
	return nil, fmt.Errorf("%w: SCSI controller %d has no unit free but those of disks that are to come back", hv.ErrUnsupported, controller)
}

// diskNumber counts sda, sdb, ... sdz, sdaa, as Linux does.
func diskNumber(target string) (int, bool) {
	const prefix, alphabet = len("sd"), 26
	if len(target) <= prefix {
		return 0, false
	}
	n := 0
	for _, letter := range target[prefix:] {
		if letter < 'a' || letter > 'z' {
			return 0, false
		}
		n = n*alphabet + int(letter-'a') + 1
	}
	return n - 1, true
}
