// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Pools are the hosts' pools.
type Pools struct {
	db     *DB
	shared map[string][]string
}

// trusted returns the reported pools of a host, marked as shared only if the site allows the
// host to share them.
func (s *Pools) trusted(reported []api.Pool, hostID, hostName string) []api.Pool {
	pools := slices.Clone(reported)
	for i := range pools {
		pools[i].Shared = pools[i].Shared && s.mayShare(pools[i].Name, hostID, hostName)
	}
	return pools
}

// mayShare reports whether the site lets the host share pools of this name. Without a list of
// hosts every host may share it.
func (s *Pools) mayShare(pool, hostID, hostName string) bool {
	if s.shared == nil {
		return true
	}
	hosts, named := s.shared[pool]
	return named && (hosts == nil || slices.Contains(hosts, hostName) || slices.Contains(hosts, hostID))
}

// unshare marks stored pools as not shared if the site no longer allows the sharing, which would
// last until the host's next report.
func (s *Pools) unshare(ctx context.Context) error {
	if s.shared == nil {
		return nil
	}
	type shared struct{ hostID, host, pool string }
	scan := ledger.ScanInto(func(p *shared) []any { return []any{&p.hostID, &p.host, &p.pool} })
	all, err := ledger.QueryAll(ctx, s.db.sqlite.Read, scan, "SELECT h.id, h.name, p.name FROM pools p JOIN hosts h ON h.id = p.host_id WHERE p.shared = 1")
	if err != nil {
		return err
	}
	return s.db.ledger.Submit(ctx, func(ctx context.Context, tx *ledger.Tx) error {
		for _, p := range all {
			if s.mayShare(p.pool, p.hostID, p.host) {
				continue
			}
			if _, err := tx.ExecContext(ctx, "UPDATE pools SET shared = 0 WHERE host_id = ? AND name = ?", p.hostID, p.pool); err != nil {
				return err
			}
		}
		return nil
	})
}

// SharedPools describes how the registry knows which pools are shared: from the site's
// configuration, or from the hosts' reports since the registry started.
type SharedPools struct {
	// Confirmed means that the configuration names the shared pools.
	Confirmed bool
	// AnyHost has the pools that the configuration names without hosts.
	AnyHost []string
	// Reported has the pools that hosts report as shared and the configuration does not confirm.
	// They count as shared unless Confirmed is true; then each is listed with its host.
	Reported []string
}

// Shared returns how the registry knows which pools are shared.
func (s *Pools) Shared() SharedPools {
	out := SharedPools{Confirmed: s.shared != nil}
	for _, pool := range slices.Sorted(maps.Keys(s.shared)) {
		if s.shared[pool] == nil {
			out.AnyHost = append(out.AnyHost, pool)
		}
	}
	for id, host := range s.db.hosts.Snapshot() {
		for _, p := range host.Pools {
			said := p.Name
			if out.Confirmed {
				said += " of " + host.Row.Name
			}
			settled := out.Confirmed && s.mayShare(p.Name, id, host.Row.Name)
			if p.Shared && !settled && !slices.Contains(out.Reported, said) {
				out.Reported = append(out.Reported, said)
			}
		}
	}
	slices.Sort(out.Reported)
	return out
}

type poolTx struct{ *Tx }

// inPool selects the locations of host ?1 that are not shared yet and are in its pool ?2, or below
// the pool's directory ?3. Each half of the union has its own index.
const inPool = `SELECT id FROM locations WHERE scope = ?1 AND pool = ?2 AND pool <> '' AND name <> ''
	UNION SELECT id FROM locations WHERE path > ?3 || '/' AND path < ?3 || '0' AND path <> '' AND ?3 <> '' AND scope = ?1`

// shareLocations makes the locations of a host in its shared pools visible to all hosts with the
// pool. A volume may be older than the sharing: a pool becomes shared when a second host reports
// it.
//
// If two hosts have volumes of one name there, the second stays in its host's scope, so that no
// other host gets it, and the audit trail names it.
func (tx poolTx) shareLocations(ctx context.Context, hostID string, pools []api.Pool) error {
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

// nameLocations sets the pool of a host's locations that have only a path, if the path is in the
// directory of one of its pools. A volume may be older than its pool.
func (tx poolTx) nameLocations(ctx context.Context, hostID string, pools []api.Pool) error {
	for _, p := range pools {
		dir := strings.TrimRight(p.Path, "/")
		if !p.Active || dir == "" || !isOfFiles(p) {
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

// isOfFiles reports whether every file in the pool's directory is in the pool, under its own name.
// The directory of a pool of devices may have other devices: pools of disks and LUNs use
// directories of the whole host, and libvirt does not know thin volumes.
func isOfFiles(p api.Pool) bool {
	return slices.Contains([]string{"dir", "fs", "netfs", "vstorage"}, p.Type)
}

func (tx poolTx) sharedBefore(ctx context.Context, hostID string) ([]string, error) {
	return ledger.QueryAll(ctx, tx, ledger.ScanString, "SELECT name FROM pools WHERE host_id = ? AND shared = 1", hostID)
}

func (tx poolTx) auditUnshared(ctx context.Context, hostID string, p api.Pool) error {
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
