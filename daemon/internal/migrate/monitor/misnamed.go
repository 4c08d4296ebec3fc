// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Misnamed returns the disks of an instance that is off if a migration's overlay has the newest
// writes and the definition does not name the overlay. Each disk has the chain that the definition
// must name. The caller holds the instance's key. Misnamed returns an error if an op of the
// migration, besides a copy, has not ended, or if src was written since, so that the overlay does
// not match it. If writes to src are not recorded, srcUnwritten is a person's statement that src
// was not written.
func (m *Monitor) Misnamed(ctx context.Context, instanceID string, srcUnwritten bool) (out []hv.NamedChain, err error) {
	err = m.history.EachOpen(ctx, func(h *history.Migration) error {
		s := &h.Spec
		if s.InstanceID != instanceID || !overlay.Watched(s) {
			return nil
		}
		if o := h.Running(); o != nil && move.GoalOf(o.Op.Kind) != move.GoalCopy { // a copy does not use the definition
			return api.Errorf(api.CodeInstanceBusy, "cannot repair instance %s: an operation of migration %s is at its disk %s; `%s` says how it goes on",
				s.InstanceName, s.MigrationID, s.Target, shell.Line("volferryctl", "migration", "show", s.MigrationID))
		}
		if !h.OnOverlay() {
			return nil
		}
		misnamed, err := m.overlay.Misnamed(ctx, s, srcUnwritten)
		if misnamed {
			out = append(out, hv.NamedChain{Target: s.Target, Chain: s.OverlayChain()})
		}
		return err
	})
	return out, err
}
