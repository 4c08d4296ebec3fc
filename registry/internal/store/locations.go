// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/api"
)

// scopeShared is the scope of places that several hosts see.
const scopeShared = "shared"

const locationColumns = "l.pool, l.name, l.path, l.format, l.size_bytes"

func locationFields(l *api.Location) []any {
	return []any{&l.Pool, &l.Name, &l.Path, &l.Format, &l.SizeBytes}
}

// scopeOf returns in which scope a location on a host is unique.
func scopeOf(ctx context.Context, q querier, hostID string, l api.Location) (string, error) {
	var shared bool
	err := q.QueryRowContext(ctx, "SELECT shared FROM pools WHERE host_id = ? AND name = ?", hostID, l.Pool).Scan(&shared)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("look up pool: %w", err)
	}
	if shared {
		return scopeShared, nil
	}
	return hostID, nil
}

// claim records that a volume is at l, or with a migrationID that it shall be.
// A place that is taken is refused with the code taken.
func (tx *changeTx) claim(ctx context.Context, volumeID, migrationID, hostID string, l api.Location, taken api.Code) error {
	if holder, err := tx.holderOf(ctx, hostID, l); err != nil {
		return err
	} else if holder != "" {
		return api.Errorf(taken, "%s is taken by %s", place(l), holder)
	}
	scope, err := scopeOf(ctx, tx, hostID, l)
	if err != nil {
		return err
	}
	return tx.exec(ctx, `INSERT INTO locations (volume_id, migration_id, scope, pool, name, path, format, size_bytes)
		VALUES (?, NULLIF(?, ''), ?, ?, ?, ?, ?, ?)`,
		volumeID, migrationID, scope, l.Pool, l.Name, l.Path, l.Format, l.SizeBytes)
}

// holderOf returns who is at l, "" if nobody is. The indexes would refuse most
// of it too; but a path given on one host may be in a pool that all see, and
// the user wants to know whose it is.
func (tx *changeTx) holderOf(ctx context.Context, hostID string, l api.Location) (string, error) {
	scope, err := scopeOf(ctx, tx, hostID, l)
	if err != nil {
		return "", err
	}
	var volume, migration string
	err = tx.QueryRowContext(ctx, `SELECT v.name, COALESCE(l.migration_id, '') FROM locations l JOIN volumes v ON v.id = l.volume_id
		WHERE (l.scope = ?1 OR l.scope = 'shared' OR ?1 = 'shared')
		  AND ((l.path <> '' AND l.path = ?2) OR (l.pool <> '' AND l.name <> '' AND l.pool = ?3 AND l.name = ?4 AND l.scope = ?1))
		LIMIT 1`, scope, l.Path, l.Pool, l.Name).Scan(&volume, &migration)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up location: %w", err)
	}
	if migration != "" {
		return fmt.Sprintf("migration %s of volume %s", migration, volume), nil
	}
	return "volume " + volume, nil
}

// place names a location for people.
func place(l api.Location) string {
	if l.Path != "" {
		return l.Path
	}
	return l.Name + " in pool " + l.Pool
}
