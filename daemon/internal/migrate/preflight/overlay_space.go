// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// CheckOverlaySpace refuses a start without space for the overlay after the other open migrations'
// overlays have grown: an overlay that fills its filesystem pauses all their guests. Starts are
// decided one after the other, so each counts the starts before it.
func (sp *Space) CheckOverlaySpace(ctx context.Context, s *move.Spec) error {
	free, err := sp.FreeBytesFor(ctx, sp.cfg.OverlayDir, s)
	if err != nil {
		return fmt.Errorf("look at the overlay directory: %w", err)
	}
	var spoken int64
	err = sp.history.EachOpen(ctx, func(h *history.Migration) error {
		state, _ := h.State()
		grows := state == api.MigrationStarting || h.OnOverlay()
		if other := &h.Spec; grows && other.Overlay != "" && filepath.Dir(other.Overlay) == filepath.Clean(sp.cfg.OverlayDir) {
			has, err := sp.files.AllocatedBytes(other.Overlay)
			if err != nil {
				has = 0 // it is not made yet
			}
			spoken += max(0, sp.OverlayRoom(other)-has)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if need := sp.OverlayRoom(s); free-spoken < need {
		return api.Errorf(api.CodeNoSpace, "cannot start a migration of volume %s: %s has %s free, of which the open migrations may need %s, and the guest's writes may need %s; make room, wait for the others or set overlay_dir",
			s.VolumeName, sp.cfg.OverlayDir, humanize.ExactBytes(free), humanize.ExactBytes(spoken), humanize.ExactBytes(need)).
			With("free_bytes", free).With("reserved_bytes", spoken).With("needed_bytes", need)
	}
	return nil
}

// OverlayRoom returns the free space that a new overlay needs. An overlay takes at most the
// volume's size, tables and, if it is encrypted, keys as large as the container's.
func (sp *Space) OverlayRoom(s *move.Spec) int64 {
	return min(sp.cfg.OverlayMinFreeBytes, s.SizeBytes()+s.SizeBytes()/100+1<<20)
}

// OverlayPath returns the path of a migration's overlay.
func (sp *Space) OverlayPath(migrationID string) string {
	return filepath.Join(sp.cfg.OverlayDir, migrationID+".qcow2")
}
