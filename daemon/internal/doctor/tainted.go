// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
)

// taints reports domains that libvirt calls tainted because of a move's monitor commands.
func (d *Doctor) taints(ctx context.Context) []api.Check {
	const name = "tainted"
	guests, err := d.Tainted(ctx)
	if err != nil {
		return []api.Check{{Name: name, Status: "warn", Message: "cannot check which domains a move has tainted: " + err.Error(), Advice: "run doctor again when libvirt answers"}}
	}
	if len(guests) == 0 {
		return []api.Check{ok(name, "no domain is tainted by a move")}
	}
	out := []api.Check{}
	for _, g := range guests {
		out = append(out, ok(name, fmt.Sprintf("libvirt marks instance %s as tainted (custom-monitor), because migration %s of volume %s has used QEMU's monitor; this is harmless, and ends with the guest's process",
			g.InstanceName, g.MigrationID, g.VolumeName)))
	}
	return out
}
