// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// checkOverlaySpace refuses a start without space for the overlay, less the space that the overlays
// of the other open migrations may still take: an overlay that fills its filesystem pauses all
// their guests. Starts are decided one after the other, so each counts those before it.
func (m *Manager) checkOverlaySpace(ctx context.Context, s *move.Spec) error {
	free, err := m.overlayFreeBytes(ctx, m.cfg.OverlayDir, s)
	if err != nil {
		return fmt.Errorf("look at the overlay directory: %w", err)
	}
	var spoken int64
	err = m.eachOpen(ctx, func(h *history) error {
		state, _ := h.state()
		grows := state == api.MigrationStarting || h.onOverlay()
		if other := &h.spec; grows && other.Overlay != "" && filepath.Dir(other.Overlay) == filepath.Clean(m.cfg.OverlayDir) {
			has, err := m.ports.Images.AllocatedBytes(other.Overlay)
			if err != nil {
				has = 0 // it is not made yet
			}
			spoken += max(0, m.overlayRoom(other)-has)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if need := m.overlayRoom(s); free-spoken < need {
		return api.Errorf(api.CodeNoSpace, "cannot start a migration of volume %s: %s has %s free, of which the open migrations may need %s, and the guest's writes may need %s; make room, wait for the others or set overlay_dir",
			s.VolumeName, m.cfg.OverlayDir, api.ExactBytes(free), api.ExactBytes(spoken), api.ExactBytes(need)).
			With("free_bytes", free).With("reserved_bytes", spoken).With("needed_bytes", need)
	}
	return nil
}

// overlayRoom returns the free space that a new overlay needs. An overlay does not grow beyond the
// volume with its tables and, if it is encrypted, keys, which are as large as the container's.
func (m *Manager) overlayRoom(s *move.Spec) int64 {
	return min(m.cfg.OverlayMinFreeBytes, s.SizeBytes()+s.SizeBytes()/100+1<<20)
}
