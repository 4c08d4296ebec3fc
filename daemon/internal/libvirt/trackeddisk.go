// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/qmp"
)

type trackedDisk struct {
	node    string
	bitmaps []qmp.Bitmap
}

func (d *trackedDisk) bitmap(name string) *qmp.Bitmap {
	for i := range d.bitmaps {
		if d.bitmaps[i].Name == name {
			return &d.bitmaps[i]
		}
	}
	return nil
}

// lacks returns ErrExists if the disk has the bitmap. has returns ErrNotFound if the disk does
// not.
func (d *trackedDisk) lacks(name string) error {
	if d.bitmap(name) != nil {
		return fmt.Errorf("%w: bitmap %s", hv.ErrExists, name)
	}
	return nil
}

func (d *trackedDisk) has(name string) error {
	if d.bitmap(name) == nil {
		return fmt.Errorf("%w: bitmap %s", hv.ErrNotFound, name)
	}
	return nil
}

// tracked reads a disk and its bitmaps from the process of a domain. Bitmaps are on the node that
// query-block names: the guest's device writes to it. Before libvirt 9.10 that is a separate
// format node for a raw image.
func (t *tracker) tracked(ctx context.Context, what, id, target string) (*trackedDisk, error) {
	disk, err := t.domains.diskElement(ctx, id, hv.Live, target)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", what, nameOf(id, target), err)
	}
	alias := ""
	if e := disk.SelectElement("alias"); e != nil {
		alias = e.SelectAttrValue("name", "")
	}
	var devices []qmp.Device
	if err := t.calls.monitor(ctx, what, id, target, qmp.Command{Execute: "query-block"}, &devices); err != nil {
		return nil, err
	}
	for _, d := range devices {
		if alias == "" || d.Inserted == nil || d.Inserted.NodeName == "" {
			continue
		}
		if d.QDev == alias || strings.HasPrefix(d.QDev, "/machine/peripheral/"+alias+"/") {
			return &trackedDisk{d.Inserted.NodeName, d.Inserted.DirtyBitmaps}, nil
		}
	}
	return nil, fmt.Errorf("%s %s: QEMU has no device %q with an image", what, nameOf(id, target), alias)
}
