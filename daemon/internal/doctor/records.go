// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/migrate/which"
	"github.com/volferry/volferry/internal/api"
)

// records reports each volume that this host has moved, if registry and journal have different
// locations for it: a guest could start on a wrong image. contradicted reports whether a volume
// has such a difference; advice about the volume must not rely on the registry's location.
func (d *Doctor) records(ctx context.Context) (checks []api.Check, contradicted func(api.Volume) bool) {
	const name = "records"
	found, err := d.Contradictions(ctx)
	contradicted = func(vol api.Volume) bool {
		return slices.ContainsFunc(found, func(c which.Contradiction) bool { return c.Volume.ID == vol.ID })
	}
	switch {
	case err != nil:
		return []api.Check{{
			Name: name, Status: "warn", Message: "cannot compare the places of moved volumes in the registry and in this host's journal: " + err.Error(),
			Advice: "run doctor again when this is fixed, and libvirt and the registry answer",
		}}, contradicted
	case len(found) == 0:
		return []api.Check{ok(name, "the registry and this host's journal agree about the place of each moved volume")}, contradicted
	}
	for _, c := range found {
		checks = append(checks, api.Check{Name: name, Status: "fail", Message: c.Witnesses, Advice: c.WayOut})
	}
	return checks, contradicted
}
