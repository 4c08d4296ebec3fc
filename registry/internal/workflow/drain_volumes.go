// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// RefreshVolumes adds volumes that have come into the pool to a running drain, and ends the
// pending lines of volumes that have left it. It writes only changes.
func (s *Drains) RefreshVolumes(ctx context.Context, call store.Call, drainID string) error {
	d, err := s.Get(ctx, drainID)
	if err != nil || d.State != api.DrainRunning {
		return err
	}
	if current, err := s.current(ctx, d); current || err != nil {
		return err
	}
	call.Key = ""
	_, err = mutate(ctx, s.db, call, "drain.refresh", nil, func(ctx context.Context, tx *changeTx) (none struct{}, err error) {
		// The drain may have been stopped meanwhile.
		if d, err = s.byID(ctx, tx, d.ID); err != nil || d.State != api.DrainRunning {
			return none, err
		}
		arrived, err := tx.addArrived(ctx, d.ID, d.Pool)
		if err != nil {
			return none, err
		}
		gone, err := tx.settleDeparted(ctx, d.ID, d.Pool)
		if err != nil || arrived+gone == 0 {
			return none, err
		}
		return none, tx.auditDrain(ctx, d, "drain.refresh", "", "", map[string]any{"arrived": arrived, "gone": gone})
	})
	return err
}

func (s *Drains) current(ctx context.Context, d api.Drain) (bool, error) {
	waits := map[string]bool{}
	settled := map[string]bool{}
	for _, v := range d.Volumes {
		waits[v.VolumeID] = v.State == api.DrainVolumePending
		settled[v.VolumeID] = v.State != api.DrainVolumePending && v.State != api.DrainVolumeMoved
	}
	inPool, err := ledger.ReadAll(ctx, s.db.Reader(), scanDrainVolume, inPoolQuery, d.Pool)
	if err != nil {
		return false, err
	}
	for _, v := range inPool {
		if !waits[v.VolumeID] && !settled[v.VolumeID] {
			return false, nil
		}
		delete(waits, v.VolumeID)
	}
	for _, left := range waits {
		if left {
			return false, nil
		}
	}
	return true, nil
}

// NextVolumes returns the moving volumes of a drain and, if the drain runs, its pending volumes.
// The caller may move pending volumes while fewer than Parallel are moving.
func (s *Drains) NextVolumes(ctx context.Context, drainID string) (moving, pending []api.DrainVolume, err error) {
	d, err := s.Get(ctx, drainID)
	if err != nil {
		return nil, nil, err
	}
	for _, v := range d.Volumes {
		switch {
		case v.State == api.DrainVolumeMoving:
			moving = append(moving, v)
		case v.State == api.DrainVolumePending && d.State == api.DrainRunning:
			pending = append(pending, v)
		}
	}
	return moving, pending, nil
}

// drainVolumeNext has the states that may follow each state of a volume. A moving volume becomes
// pending again if its move could not begin.
var drainVolumeNext = map[string][]string{
	api.DrainVolumePending: {api.DrainVolumeMoving, api.DrainVolumeMoved, api.DrainVolumeSkipped, api.DrainVolumeFailed},
	api.DrainVolumeMoving:  {api.DrainVolumePending, api.DrainVolumeMoved, api.DrainVolumeSkipped, api.DrainVolumeFailed},
}

// SetVolume records the state, migration, host and error of a volume of a drain. It refuses the
// state moving with conflict, unless the drain runs and fewer than Parallel volumes move.
func (s *Drains) SetVolume(ctx context.Context, call store.Call, drainID string, v api.DrainVolume) error {
	if err := cmp.Or(validate.ID("volume id", v.VolumeID), validate.Text("migration id", v.MigrationID), validate.Text("host", v.Host)); err != nil {
		return err
	}
	_, err := mutate(ctx, s.db, call, "drain.volume", []any{drainID, v}, func(ctx context.Context, tx *changeTx) (none struct{}, err error) {
		id, err := store.Resolve(ctx, tx, kindDrain, drainID)
		if err != nil {
			return none, err
		}
		d, err := s.byID(ctx, tx, id)
		if err != nil {
			return none, err
		}
		was, err := scanDrainVolume(tx.QueryRowContext(ctx, drainVolumeQuery+" WHERE drain_id = ? AND volume_id = ?", id, v.VolumeID))
		if errors.Is(err, sql.ErrNoRows) {
			return none, api.Errorf(api.CodeNotFound, "drain %s has no volume %s", id, v.VolumeID)
		}
		if err != nil {
			return none, fmt.Errorf("read volume of drain: %w", err)
		}
		v.Host = cmp.Or(v.Host, was.Host)
		if was.State == v.State && was.MigrationID == v.MigrationID && was.Host == v.Host {
			return none, nil
		}
		if err := checkDrainVolume(d, was, v); err != nil {
			return none, err
		}
		if err := tx.storeDrainVolume(ctx, id, v); err != nil {
			return none, err
		}
		from, to := was.State, v.State
		if from == to { // only its migration or host has become known
			from, to = "", ""
		}
		return none, tx.auditDrain(ctx, d, "drain.volume", from, to, map[string]any{
			"volume_id": v.VolumeID, "volume_name": was.VolumeName, "migration_id": v.MigrationID, "host": v.Host, "error": v.Error,
		})
	})
	return err
}

func checkDrainVolume(d api.Drain, was, v api.DrainVolume) error {
	if was.State != v.State && !slices.Contains(drainVolumeNext[was.State], v.State) {
		return api.Errorf(api.CodeConflict, "volume %s of drain %s is %s and cannot become %s", was.VolumeName, d.ID, was.State, validate.Quote(v.State)).
			With("state", was.State)
	}
	if was.State == api.DrainVolumeMoving || v.State != api.DrainVolumeMoving {
		return nil
	}
	if d.State != api.DrainRunning {
		return api.Errorf(api.CodeConflict, "drain %s is %s; it begins nothing", d.ID, d.State).With("state", d.State)
	}
	moving := 0
	for _, other := range d.Volumes {
		if other.State == api.DrainVolumeMoving {
			moving++
		}
	}
	if moving >= d.Parallel {
		return api.Errorf(api.CodeConflict, "drain %s moves %s, and no more at once", d.ID, humanize.Count(moving, "volume"))
	}
	return nil
}
