// SPDX-License-Identifier: Apache-2.0

package which

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// Moved returns, by volume id, the new locations of volumes that this host has moved since the
// registry returned known: a volume that was returned before its move is at src in known, with the
// old generation.
func (f *Finder) Moved(ctx context.Context, known []api.Volume) (map[string]api.Location, error) {
	generations := make(map[string]int64, len(known))
	for i := range known {
		generations[known[i].ID] = known[i].Generation
	}
	starts, err := f.history.Starts(ctx)
	if err != nil {
		return nil, err
	}
	moved := map[string]api.Location{}
	for _, o := range slices.Backward(starts) {
		s, err := history.SpecOf(o)
		if err != nil {
			return nil, err
		}
		generation, asked := generations[s.VolumeID]
		if !asked || s.Generation < generation || s.LedByRegistry() {
			continue
		}
		h, err := f.history.Load(ctx, o.Group)
		if err != nil {
			return nil, err
		}
		if _, newer := moved[s.VolumeID]; !newer && h.Position() == move.OnDst {
			moved[s.VolumeID] = s.Dst
		}
	}
	return moved, nil
}
