// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
)

// checkRecorded refuses a move, or a part in one that the registry leads, if the journal of this host has the volume elsewhere
// than the registry.
func (m *Manager) checkRecorded(ctx context.Context, vol api.Volume) error {
	return image.Prefixed("cannot migrate volume "+vol.Name, m.CheckVolumeRecorded(ctx, vol))
}

// checkLedPlace refuses a place that the registry names, in a move that it leads, if no volume may be
// there on this host. In no pool there may also be the image that a guest of this host has: it was
// there before it became a volume.
func (m *Manager) checkLedPlace(ctx context.Context, volume string, l api.Location) error {
	if l.Pool == "" {
		doms, err := m.ports.HV.Domains(ctx)
		if err != nil {
			return steps.HVRefusal(err)
		}
		if slices.ContainsFunc(doms, func(d hv.Domain) bool { return hasImage(&d, l.Path) }) {
			return steps.HVRefusal(m.cfg.Rules.CheckImages(l))
		}
	}
	return steps.HVRefusal(m.cfg.Rules.CheckLocation(ctx, m.ports.HV, l, "cannot migrate volume "+volume))
}

// hasImage reports whether the definition of a domain has a disk on the image at path, by this name.
func hasImage(d *hv.Domain, path string) bool {
	return slices.ContainsFunc(d.Config, func(disk hv.Disk) bool { return len(disk.Chain) > 0 && disk.Top().Path == path })
}
