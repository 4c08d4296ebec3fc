// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/registry/internal/ledger"
)

const scopeShared = "shared"

// LocationColumns are the columns, with the alias l, that LocationFields scans.
const LocationColumns = "l.pool, l.name, l.path, l.format, l.size_bytes, l.backing, l.image_bytes, l.luks_secret, l.identity"

// LocationFields returns the scan targets for LocationColumns.
func LocationFields(l *api.Location) []any {
	return []any{&l.Pool, &l.Name, &l.Path, &l.Format, &l.SizeBytes, &l.Backing, &l.ImageBytes, &l.LUKSSecret, &l.Identity}
}

// scopeOf returns the scope of a host's location; a location is unique within its scope. The scope
// is scopeShared for a network address, and for a path in the directory of a shared pool, whether
// or not the location names the pool. Otherwise it is the host's id.
func scopeOf(ctx context.Context, q ledger.Querier, hostID string, l api.Location) (string, error) {
	if medium.Of(l.Path).Remote {
		return scopeShared, nil
	}
	var shared bool
	if err := q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM pools WHERE host_id = ?1 AND shared = 1
		AND (name = ?2 OR (path <> '' AND substr(?3, 1, length(path) + 1) = path || '/')))`, hostID, l.Pool, l.Path).Scan(&shared); err != nil {
		return "", fmt.Errorf("look up pool: %w", err)
	}
	if shared {
		return scopeShared, nil
	}
	return hostID, nil
}

// InSharedPool reports whether other hosts see the bytes at the host's location.
func InSharedPool(ctx context.Context, q ledger.Querier, hostID string, l api.Location) (bool, error) {
	scope, err := scopeOf(ctx, q, hostID, l)
	return scope == scopeShared, err
}

// basesReachedBy returns the SQL condition that host hostID reaches every base image of a linked
// clone of host ownerID: both hosts share the base image's pool at the same path. The arguments
// are SQL expressions for the two ids and the clone's backing.
func basesReachedBy(hostID, ownerID, backing string) string {
	return fmt.Sprintf(`NOT EXISTS (SELECT 1 FROM json_each(CASE %[3]s WHEN '' THEN '[]' ELSE %[3]s END) base WHERE NOT EXISTS (
		SELECT 1 FROM pools hp JOIN pools op ON op.name = hp.name AND op.path = hp.path
		WHERE hp.host_id = %[1]s AND op.host_id = %[2]s AND hp.shared = 1 AND op.shared = 1 AND hp.path <> ''
			AND substr(json_extract(base.value, '$.path'), 1, length(rtrim(hp.path, '/')) + 1) = rtrim(hp.path, '/') || '/'))`,
		hostID, ownerID, backing)
}

var reachesQuery = `SELECT EXISTS (SELECT 1 FROM pools WHERE host_id = ?1 AND name = ?2 AND shared = 1)
	AND ` + basesReachedBy("?1", "?3", "?4")

// Reaches reports whether a host reaches the bytes at a location of ownerID: the host is the
// owner, or it also has the shared pool of the location and of all base images. Only the owner
// reaches an export over TCP: hosts do not report whether they can connect.
func Reaches(ctx context.Context, q ledger.Querier, hostID, ownerID, scope string, l api.Location) (yes bool, err error) {
	switch {
	case scope != scopeShared:
		return scope == hostID, nil
	case ownerID == hostID:
		return true, nil
	}
	if err := q.QueryRowContext(ctx, reachesQuery, hostID, l.Pool, ownerID, l.Backing).Scan(&yes); err != nil {
		return false, fmt.Errorf("look up pool: %w", err)
	}
	return yes, nil
}

// reserveLocation stores l as a volume's location or, with a migrationID, as its future location.
// If another volume has l, it returns an error with taken as the code.
func (tx *Tx) reserveLocation(ctx context.Context, volumeID, migrationID, hostID string, l api.Location, taken api.Code) error {
	l, err := inItsPool(ctx, tx, hostID, l)
	if err != nil {
		return err
	}
	if holder, err := tx.locationHolder(ctx, hostID, l); err != nil {
		return err
	} else if holder != "" {
		return api.Errorf(taken, "%s is taken by %s", Place(l), holder)
	}
	scope, err := scopeOf(ctx, tx, hostID, l)
	if err != nil {
		return err
	}
	return tx.ExecAll(ctx, InsertLocation(volumeID, migrationID, scope, l))
}

// InsertLocation returns the statement that stores a volume's location l or, with a migrationID,
// its future location. The location is unique within scope.
func InsertLocation(volumeID, migrationID, scope string, l api.Location) ledger.Step {
	return ledger.SQL(`INSERT INTO locations (volume_id, migration_id, scope, pool, name, path, format, size_bytes, backing, image_bytes, luks_secret, identity)
		VALUES (?, NULLIF(?, ''), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		volumeID, migrationID, scope, l.Pool, l.Name, l.Path, l.Format, l.SizeBytes, l.Backing, l.ImageBytes, l.LUKSSecret, l.Identity)
}

// checkPoolReported refuses a pool that the host has not reported, because its sharing and
// properties are unknown. A host must report a new pool first.
func (tx *Tx) checkPoolReported(ctx context.Context, hostID string, l api.Location) error {
	if l.Pool == "" {
		return nil
	}
	var known bool
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pools WHERE host_id = ? AND name = ?)", hostID, l.Pool).Scan(&known); err != nil {
		return fmt.Errorf("look up pool: %w", err)
	}
	if !known {
		return api.Errorf(api.CodeNotFound, "there is no pool %q on this host that the registry knows; `volferryctl pool list` shows them", l.Pool).
			With(api.DetailReportFirst, true)
	}
	return nil
}

// inItsPool sets the pool of a location given by path, if the path is in the directory of one of
// the host's pools of files (isOfFiles). Then a location has one name on hosts with different
// mount points, and a drain of the pool finds it.
func inItsPool(ctx context.Context, q ledger.Querier, hostID string, l api.Location) (api.Location, error) {
	if l.Pool != "" || l.Path == "" {
		return l, nil
	}
	var pool string
	err := q.QueryRowContext(ctx, `SELECT name FROM pools WHERE host_id = ? AND active = 1 AND path <> '' AND rtrim(path, '/') = ?
		AND type IN ('dir', 'fs', 'netfs', 'vstorage')
		ORDER BY shared DESC, name LIMIT 1`, hostID, path.Dir(l.Path)).Scan(&pool)
	if errors.Is(err, sql.ErrNoRows) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("look up the pool of a path: %w", err)
	}
	l.Pool, l.Name = pool, path.Base(l.Path)
	return l, nil
}

// holderQuery looks up path and name separately, because each has its own index. The same path on
// two hosts is one location, unless one of the hosts has its own pool at that path.
const holderQuery = `SELECT v.name, COALESCE(l.migration_id, '') FROM (
		SELECT volume_id, migration_id FROM locations
		WHERE path <> '' AND path = ?2 AND (scope = ?1 OR (scope = 'shared' AND ?3 = '') OR (?1 = 'shared' AND pool = ''))
		UNION ALL
		SELECT volume_id, migration_id FROM locations
		WHERE pool <> '' AND name <> '' AND scope = ?1 AND pool = ?3 AND name = ?4
	) l JOIN volumes v ON v.id = l.volume_id LIMIT 1`

// locationHolder returns the holder of l, or "". The unique indexes refuse most conflicts too, but
// they miss a path in a pool of several hosts and do not name the holder.
func (tx *Tx) locationHolder(ctx context.Context, hostID string, l api.Location) (string, error) {
	scope, err := scopeOf(ctx, tx, hostID, l)
	if err != nil {
		return "", err
	}
	var volume, migration string
	err = tx.QueryRowContext(ctx, holderQuery, scope, l.Path, l.Pool, l.Name).Scan(&volume, &migration)
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

// Place formats a location for messages.
func Place(l api.Location) string {
	if l.Path != "" {
		return l.Path
	}
	return l.Name + " in pool " + l.Pool
}
