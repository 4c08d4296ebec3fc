// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

// clonesQuery is every linked clone at its place. It looks at all places, so it is for views alone.
const clonesQuery = `SELECT v.id, v.name, h.name, ` + store.LocationColumns + `
	FROM locations l JOIN volumes v ON v.id = l.volume_id JOIN hosts h ON h.id = v.host_id
	WHERE l.migration_id IS NULL AND l.backing <> '' ORDER BY v.name, v.id`

func scanClone(row ledger.Scanner) (v api.Volume, err error) {
	err = row.Scan(append([]any{&v.ID, &v.Name, &v.Host}, store.LocationFields(&v.Location)...)...)
	return v, err
}

// AddBaseReaders adds, to the last drain of each pool, the volumes that are not in the pool and
// read a base image there, as skipped, with what to do: the pool may not go before. They are as
// of now and are not stored with the drain, which has nothing to move of them.
func (s *Store) AddBaseReaders(ctx context.Context, drains []api.Drain) error {
	if len(drains) == 0 {
		return nil
	}
	clones, err := ledger.ReadAll(ctx, s.Reader(), scanClone, clonesQuery)
	if err != nil || len(clones) == 0 {
		return err
	}
	pools, err := s.Pools(ctx)
	if err != nil {
		return err
	}
	for i := range drains {
		d := &drains[i]
		var last bool
		if err := s.Reader().QueryRowContext(ctx, "SELECT NOT EXISTS (SELECT 1 FROM drains WHERE pool = ? AND started_us > ?)", d.Pool, d.StartedAt.UnixMicro()).Scan(&last); err != nil {
			return fmt.Errorf("look up later drains: %w", err)
		}
		if last {
			addBaseReaders(d, clones, pools)
		}
	}
	return nil
}

func addBaseReaders(d *api.Drain, clones []api.Volume, pools []api.Pool) {
	for i := range clones {
		v := &clones[i]
		at := slices.IndexFunc(pools, func(p api.Pool) bool { return p.Name == d.Pool && p.Host == v.Host })
		if at < 0 {
			continue
		}
		why := v.ReadsFrom(&pools[at])
		if why == nil {
			continue
		}
		n := slices.IndexFunc(d.Volumes, func(l api.DrainVolume) bool { return l.VolumeID == v.ID })
		switch {
		case n < 0:
			d.Volumes = append(d.Volumes, api.DrainVolume{
				VolumeID: v.ID, VolumeName: v.Name, SizeBytes: v.Location.SizeBytes, Host: v.Host, State: api.DrainVolumeSkipped, Error: why,
			})
		case d.Volumes[n].State != api.DrainVolumePending && d.Volumes[n].State != api.DrainVolumeMoving:
			// Somebody moved it out of the pool with --keep-base.
			d.Volumes[n].State, d.Volumes[n].Error = api.DrainVolumeSkipped, why
		}
	}
}
