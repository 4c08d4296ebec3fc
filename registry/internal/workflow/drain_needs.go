// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/domainfiles"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

// outsideQuery selects every existing volume that is a linked clone, is in no pool, or is in a
// pool at or below another pool's path. It scans all locations: use it for views only.
const outsideQuery = `SELECT v.id, v.name, h.name, ` + store.LocationColumns + `
	FROM locations l JOIN volumes v ON v.id = l.volume_id JOIN hosts h ON h.id = v.host_id
	WHERE l.migration_id IS NULL AND l.path <> '' AND (l.backing <> '' OR l.pool = '' OR EXISTS (
		SELECT 1 FROM pools mine JOIN pools other ON other.host_id = mine.host_id AND other.name <> mine.name
			AND (rtrim(mine.path, '/') = rtrim(other.path, '/') OR mine.path LIKE rtrim(other.path, '/') || '/_%')
		WHERE mine.host_id = v.host_id AND mine.name = l.pool AND other.path <> '')) ORDER BY v.name, v.id`

func scanOutside(row ledger.Scanner) (v api.Volume, err error) {
	err = row.Scan(append([]any{&v.ID, &v.Name, &v.Host}, store.LocationFields(&v.Location)...)...)
	return v, err
}

// AddNeeds adds to a pool's last drain the other obstacles to removing the pool: volumes outside
// of the pool that need an image below its path, as skipped volumes, and files in the pool that
// domains need, as uses. The drain does not move them.
func (s *Drains) AddNeeds(ctx context.Context, drains []api.Drain) error {
	if len(drains) == 0 {
		return nil
	}
	outside, err := ledger.ReadAll(ctx, s.db.Reader(), scanOutside, outsideQuery)
	if err != nil {
		return err
	}
	pools, err := s.pools.All(ctx)
	if err != nil {
		return err
	}
	shelved, err := ledger.ReadAll(ctx, s.db.Reader(), scanShelved, "SELECT i.name, s.definition FROM shelves s JOIN instances i ON i.id = s.instance_id ORDER BY i.name")
	if err != nil {
		return err
	}
	for i := range drains {
		d := &drains[i]
		var last bool
		if err := s.db.Reader().QueryRowContext(ctx, "SELECT NOT EXISTS (SELECT 1 FROM drains WHERE pool = ? AND started_us > ?)", d.Pool, d.StartedAt.UnixMicro()).Scan(&last); err != nil {
			return fmt.Errorf("look up later drains: %w", err)
		}
		if last {
			addOutside(d, outside, pools)
			addUses(d, pools)
			addShelved(d, shelved, pools)
		}
	}
	return nil
}

type shelvedFiles struct {
	instance string
	files    []domainfiles.File
	unread   error
}

func scanShelved(row ledger.Scanner) (s shelvedFiles, err error) {
	var text string
	if err := row.Scan(&s.instance, &text); err != nil {
		return s, err
	}
	var def api.InstanceDefinition
	bad := json.Unmarshal([]byte(text), &def)
	s.files, s.unread = domainfiles.Named(def.Domain)
	s.unread = errors.Join(bad, s.unread)
	s.files = slices.DeleteFunc(s.files, func(f domainfiles.File) bool {
		_, device, _ := strings.Cut(f.What, " ")
		_, isVolume := def.Disks[device]
		return isVolume
	})
	return s, nil
}

func addShelved(d *api.Drain, shelved []shelvedFiles, pools []api.Pool) {
	for i := range shelved {
		s := &shelved[i]
		domain := s.instance + " (shelved)"
		if s.unread != nil {
			d.Uses = append(d.Uses, api.PoolUse{Domain: domain, Unknown: s.unread.Error()})
		}
		for _, f := range s.files {
			in := func(p api.Pool) bool {
				return p.Name == d.Pool && (f.Pool == p.Name || f.Pool == "" && p.Covers(f.Path))
			}
			if slices.ContainsFunc(pools, in) {
				d.Uses = append(d.Uses, api.PoolUse{Domain: domain, What: f.What, Path: f.Path})
			}
		}
	}
	slices.SortFunc(d.Uses, api.PoolUse.Compare)
}

func addUses(d *api.Drain, pools []api.Pool) {
	for i := range pools {
		if pools[i].Name == d.Pool {
			d.Uses = append(d.Uses, pools[i].Uses...)
		}
	}
	slices.SortFunc(d.Uses, api.PoolUse.Compare)
}

func addOutside(d *api.Drain, outside []api.Volume, pools []api.Pool) {
	for i := range outside {
		v := &outside[i]
		at := slices.IndexFunc(pools, func(p api.Pool) bool { return p.Name == d.Pool && p.Host == v.Host })
		if at < 0 {
			continue
		}
		why := v.NeedsPool(&pools[at])
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
			// It was moved out of the pool with --keep-base.
			d.Volumes[n].State, d.Volumes[n].Error = api.DrainVolumeSkipped, why
		}
	}
}
