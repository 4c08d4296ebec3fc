// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func TestADiskOfARunningGuestNeedsAFreePort(t *testing.T) {
	vdb := diskAt("vdb", "virtio", pciAt(1, 0, 0))
	for name, tc := range map[string]struct {
		live, disk string
		refused    bool
	}{
		"all ports taken":           {express(1) + vdb, diskAt("vdc", "virtio", ""), true},
		"one is free":               {express(2) + vdb, diskAt("vdc", "virtio", ""), false},
		"it states its address":     {express(1) + vdb, diskAt("vdc", "virtio", pciAt(1, 0, 0)), false},
		"it is no device of PCI":    {express(1) + vdb, diskAt("sda", "scsi", ""), false},
		"a machine with plain PCI":  {pciController(0, "pci-root", ""), diskAt("vdc", "virtio", ""), false},
		"a bridge is no port of it": {express(1) + vdb + pciController(2, "pci-bridge", ""), diskAt("vdc", "virtio", ""), true},
	} {
		err := CheckPort("<domain><devices>"+tc.live+"</devices></domain>", tc.disk)
		if errors.Is(err, hv.ErrUnsupported) != tc.refused || err != nil && !tc.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
