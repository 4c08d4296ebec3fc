// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

const drainVolumeQuery = "SELECT volume_id, volume_name, size_bytes, host, state, migration_id, error FROM drain_volumes"

func scanDrainVolume(row ledger.Scanner) (api.DrainVolume, error) {
	var (
		v    api.DrainVolume
		fail []byte
	)
	if err := row.Scan(&v.VolumeID, &v.VolumeName, &v.SizeBytes, &v.Host, &v.State, &v.MigrationID, &fail); err != nil {
		return v, err
	}
	if fail != nil {
		if err := json.Unmarshal(fail, &v.Error); err != nil {
			return v, fmt.Errorf("decode error: %w", err)
		}
	}
	return v, nil
}

// inPoolQuery selects every volume that is in a pool, or is being moved there, on any host.
const inPoolQuery = `SELECT v.id, v.name, l.size_bytes, h.name, 'pending', '', NULL
	FROM volumes v JOIN locations l ON l.volume_id = v.id AND l.migration_id IS NULL JOIN hosts h ON h.id = v.host_id
	WHERE v.id IN (SELECT volume_id FROM locations WHERE pool = ?1 AND pool <> '' AND migration_id IS NULL
		UNION ALL SELECT volume_id FROM locations WHERE migration_id > '' AND pool = ?1)`

// addArrived adds to a drain a pending line for every volume of the pool that has none, and for
// every moved volume that is back.
func (tx *changeTx) addArrived(ctx context.Context, drainID, pool string) (int, error) {
	arrived, err := ledger.QueryAll(ctx, tx, scanDrainVolume, inPoolQuery+` AND NOT EXISTS (
		SELECT 1 FROM drain_volumes d WHERE d.drain_id = ?2 AND d.volume_id = v.id AND d.state <> 'moved')`, pool, drainID)
	if err != nil {
		return 0, err
	}
	for _, v := range arrived {
		if err := tx.Exec(ctx, `INSERT INTO drain_volumes (drain_id, volume_id, volume_name, size_bytes, host, state, migration_id)
			VALUES (?, ?, ?, ?, ?, 'pending', '')
			ON CONFLICT (drain_id, volume_id) DO UPDATE SET state = 'pending', migration_id = '', error = NULL`,
			drainID, v.VolumeID, v.VolumeName, v.SizeBytes, v.Host); err != nil {
			return 0, err
		}
	}
	return len(arrived), nil
}

// settleDeparted ends the pending lines of volumes that are neither in the pool nor being moved
// into it, after other requests.
func (tx *changeTx) settleDeparted(ctx context.Context, drainID, pool string) (int, error) {
	gone, err := ledger.QueryAll(ctx, tx, scanDrainVolume, drainVolumeQuery+` AS d WHERE drain_id = ?2 AND state = 'pending' AND NOT EXISTS (
		SELECT 1 FROM locations l WHERE l.volume_id = d.volume_id AND l.pool = ?1)`, pool, drainID)
	if err != nil {
		return 0, err
	}
	for _, v := range gone {
		var there bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM volumes WHERE id = ?)", v.VolumeID).Scan(&there); err != nil {
			return 0, fmt.Errorf("look up volume: %w", err)
		}
		v.State = api.DrainVolumeMoved
		if !there {
			v.State = api.DrainVolumeSkipped
			v.Error = api.Errorf(api.CodeNotFound, "volume %s was deleted before its turn", v.VolumeName)
		}
		if err := tx.storeDrainVolume(ctx, drainID, v); err != nil {
			return 0, err
		}
	}
	return len(gone), nil
}

func (tx *changeTx) storeDrainVolume(ctx context.Context, drainID string, v api.DrainVolume) error {
	var fail any
	if v.Error != nil {
		b, err := json.Marshal(v.Error)
		if err != nil {
			return fmt.Errorf("encode error: %w", err)
		}
		fail = string(b)
	}
	return tx.Exec(ctx, "UPDATE drain_volumes SET state = ?, migration_id = ?, host = ?, error = ? WHERE drain_id = ? AND volume_id = ?",
		v.State, v.MigrationID, v.Host, fail, drainID, v.VolumeID)
}
