// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// diskAt returns a definition's disk; an empty address means none.
func diskAt(target, bus, address string) string {
	return fmt.Sprintf(`<disk type='file' device='disk'><source file='/%s'/><target dev='%s' bus='%s'/>%s</disk>`, target, target, bus, address)
}

func pciAt(bus, slot, function uint) string {
	return fmt.Sprintf(`<address type='pci' domain='0x0000' bus='0x%02x' slot='0x%02x' function='0x%x'/>`, bus, slot, function)
}

func driveAt(controller, unit int) string {
	return fmt.Sprintf(`<address type='drive' controller='%d' bus='0' target='0' unit='%d'/>`, controller, unit)
}

func pciController(index uint, model, address string) string {
	return fmt.Sprintf(`<controller type='pci' index='%d' model='%s'>%s</controller>`, index, model, address)
}

// express returns a machine with PCI Express and this many ports.
func express(ports uint) string {
	all := pciController(0, "pcie-root", "")
	for n := uint(1); n <= ports; n++ {
		all += pciController(n, "pcie-root-port", pciAt(0, 2, n-1))
	}
	return all
}

func TestANewDiskIsPlacedBesideThoseThatAreAway(t *testing.T) {
	plain := pciController(0, "pci-root", "")
	full := plain
	for slot := uint(3); slot <= 31; slot++ {
		if slot != 9 {
			full += fmt.Sprintf("<interface type='user'>%s</interface>", pciAt(0, slot, 0))
		}
	}
	scsi := "<controller type='scsi' index='0' model='virtio-scsi'>" + pciAt(0, 4, 0) + "</controller>"
	vda := func(bus, slot uint) string { return diskAt("vda", "virtio", pciAt(bus, slot, 0)) }
	for name, c := range map[string]struct {
		devices   string
		new       string
		away      []string
		live      bool
		want      string // address; empty: libvirt's choice
		wantError error
	}{
		"first free slot":                 {devices: plain, new: "vdb", away: []string{vda(0, 3)}, want: "pci:0000:00:04.0"},
		"other functions of a slot":       {devices: plain + "<sound>" + pciAt(0, 4, 1) + "</sound>", new: "vdb", away: []string{vda(0, 3)}, want: "pci:0000:00:05.0"},
		"a host's device is elsewhere":    {devices: plain + "<hostdev><source>" + pciAt(0, 3, 0) + "</source>" + pciAt(0, 5, 0) + "</hostdev>", new: "vdb", away: []string{vda(0, 4)}, want: "pci:0000:00:03.0"},
		"several that are away":           {devices: plain, new: "vdc", away: []string{vda(0, 3), diskAt("vdb", "virtio", pciAt(0, 4, 0))}, want: "pci:0000:00:05.0"},
		"behind a bridge":                 {devices: full + pciController(1, "pci-bridge", pciAt(0, 31, 0)), new: "vdb", away: []string{vda(0, 9)}, want: "pci:0000:01:01.0"},
		"full but for one that is away":   {devices: full, new: "vdb", away: []string{vda(0, 9)}, wantError: hv.ErrUnsupported},
		"free port":                       {devices: express(3) + diskAt("vdb", "virtio", pciAt(1, 0, 0)), new: "vdc", away: []string{vda(2, 0)}, want: "pci:0000:03:00.0"},
		"port that was given up":          {devices: express(2), new: "vdb", away: []string{vda(2, 0)}, want: "pci:0000:01:00.0"},
		"no free port":                    {devices: express(2) + diskAt("vdb", "virtio", pciAt(1, 0, 0)), new: "vdc", away: []string{vda(2, 0)}, want: "pci:0000:03:00.0"},
		"no free port, running":           {devices: express(1), new: "vdb", away: []string{vda(1, 0)}, live: true, wantError: hv.ErrUnsupported},
		"no free port and bus 0 reserved": {devices: express(0), new: "vdb", away: []string{vda(0, 3)}, wantError: hv.ErrUnsupported},
		"no bridge of PCI for a disk":     {devices: express(1) + pciController(2, "pcie-to-pci-bridge", pciAt(1, 0, 0)) + pciController(3, "pci-bridge", pciAt(2, 1, 0)), new: "vdb", away: []string{vda(4, 0)}, want: "pci:0000:05:00.0"},
		"one away has no address":         {devices: plain, new: "vdb", away: []string{diskAt("vda", "virtio", "")}},
		"one away is on another bus":      {devices: plain, new: "vdb", away: []string{diskAt("sda", "scsi", driveAt(0, 0))}},
		"SCSI unit of its name":           {devices: plain + scsi, new: "sdb", away: []string{diskAt("sda", "scsi", driveAt(0, 0))}},
		"SCSI unit that is reserved":      {devices: plain + scsi + diskAt("sdc", "scsi", driveAt(0, 0)), new: "sdb", away: []string{diskAt("sda", "scsi", driveAt(0, 1))}, want: "drive:0:0:0:2"},
		"a unit of another kind of drive": {devices: plain + scsi, new: "sda", away: []string{diskAt("hda", "ide", driveAt(0, 0))}},
		"SCSI on the second controller":   {devices: plain + scsi, new: "sdh", away: []string{diskAt("sda", "scsi", driveAt(1, 0))}, want: "drive:1:0:0:1"},
		"same target":                     {devices: plain, new: "vda", away: []string{vda(0, 3)}, wantError: hv.ErrExists},
	} {
		bus := map[string]string{"vd": "virtio", "sd": "scsi"}[c.new[:2]]
		got, err := AllocAddress("<domain><devices>"+c.devices+"</devices></domain>", diskAt(c.new, bus, ""), c.away, !c.live)
		if !errors.Is(err, c.wantError) {
			t.Errorf("%s: %v, want %v", name, err, c.wantError)
		}
		if err != nil {
			continue
		}
		d, err := ParseDisk(got, nil)
		if err != nil || d.Address != c.want || strings.Count(got, "<address") > 1 {
			t.Errorf("%s: address %q, want %q (%v): %s", name, d.Address, c.want, err, got)
		}
	}
}

func TestADiskWithAnAddressOfItsOwnIsNotGivenOneThatIsReserved(t *testing.T) {
	away := []string{diskAt("vda", "virtio", pciAt(0, 3, 0))}
	domain := "<domain><devices>" + pciController(0, "pci-root", "") + "</devices></domain>"
	if _, err := AllocAddress(domain, diskAt("vdb", "virtio", pciAt(0, 3, 0)), away, true); !errors.Is(err, hv.ErrExists) {
		t.Errorf("at the reserved address: %v", err)
	}
	want := diskAt("vdb", "virtio", pciAt(0, 4, 0))
	if got, err := AllocAddress(domain, want, away, true); err != nil || got != want {
		t.Errorf("at its own: %s, %v", got, err)
	}
	if _, err := AllocAddress(domain, want, []string{"<disk"}, true); err == nil {
		t.Error("a reserved disk that cannot be read was overlooked")
	}
}
