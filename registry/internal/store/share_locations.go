// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// inPool are the places of a host (?1) that are its own and in its pool called ?2 or
// below the directory ?3. It is two looks in one, because each has its index.
const inPool = `SELECT id FROM locations WHERE scope = ?1 AND pool = ?2 AND pool <> '' AND name <> ''
	UNION SELECT id FROM locations WHERE path > ?3 || '/' AND path < ?3 || '0' AND path <> '' AND ?3 <> '' AND scope = ?1`

// shareLocations gives what a host has in its shared pools to all that share them. A
// volume may be older than that: the pool becomes shared when the second host comes.
//
// Two hosts may each have a volume of one name there, which was two images before and
// is one now, or was one all along. The second of them stays its host's alone, so that
// nobody else is given it, and the audit trail names it.
func (tx *Tx) shareLocations(ctx context.Context, hostID string, pools []api.Pool) error {
	for _, p := range pools {
		if !p.Shared {
			continue
		}
		if err := tx.Exec(ctx, "UPDATE OR IGNORE locations SET scope = 'shared' WHERE id IN ("+inPool+")", hostID, p.Name, p.Path); err != nil {
			return err
		}
	}
	return nil
}

// nameLocations names the pool of what a host has in the directory of one and knows by
// its path. A volume may be older than the pool, and a registry than this.
func (tx *Tx) nameLocations(ctx context.Context, hostID string, pools []api.Pool) error {
	for _, p := range pools {
		dir := strings.TrimRight(p.Path, "/")
		if !p.Active || dir == "" {
			continue
		}
		if err := tx.Exec(ctx, `UPDATE OR IGNORE locations SET pool = ?2, name = substr(path, length(?3) + 2)
			WHERE pool = '' AND path > ?3 || '/' AND path < ?3 || '0' AND instr(substr(path, length(?3) + 2), '/') = 0
			AND (scope = ?1 OR (scope = 'shared' AND volume_id IN (SELECT id FROM volumes WHERE host_id = ?1)))`, hostID, p.Name, dir); err != nil {
			return err
		}
	}
	return nil
}

// sharedBefore are the pools that a host had and that were shared.
func (tx *Tx) sharedBefore(ctx context.Context, hostID string) ([]string, error) {
	return ledger.QueryAll(ctx, tx, ledger.ScanString, "SELECT name FROM pools WHERE host_id = ? AND shared = 1", hostID)
}

// auditUnshared tells of the volumes of a host that could not become everybody's as
// its pool became shared.
func (tx *Tx) auditUnshared(ctx context.Context, hostID string, p api.Pool) error {
	names, err := ledger.QueryAll(ctx, tx, ledger.ScanString, `SELECT DISTINCT v.name FROM locations l JOIN volumes v ON v.id = l.volume_id
		WHERE l.id IN (`+inPool+") ORDER BY v.name", hostID, p.Name, p.Path)
	if err != nil || len(names) == 0 {
		return err
	}
	host, err := tx.hostRow(ctx, hostID)
	if err != nil {
		return err
	}
	return tx.Audit(ctx, api.Event{
		What: "pool.shared_twice", Host: host.Name, Object: "pool/" + p.Name,
		Details: map[string]any{"volumes": names, "reason": "another volume has the same place in this pool, which is shared now; these stay their host's alone"},
	})
}
