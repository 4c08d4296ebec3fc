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

// trustedPools is what a host reports of its pools, as far as the site agrees that the
// host shares them.
func (s *Store) trustedPools(reported []api.Pool, hostID, hostName string) []api.Pool {
	pools := slices.Clone(reported)
	for i := range pools {
		pools[i].Shared = pools[i].Shared && s.maySharePool(pools[i].Name, hostID, hostName)
	}
	return pools
}

// maySharePool reports whether the site lets a host share the pools of a name. A pool that
// is named without hosts is shared by every host that says so.
func (s *Store) maySharePool(pool, hostID, hostName string) bool {
	if s.sharedPools == nil {
		return true
	}
	hosts, named := s.sharedPools[pool]
	return named && (hosts == nil || slices.Contains(hosts, hostName) || slices.Contains(hosts, hostID))
}

// unshare takes from hosts what they said of their pools and the site does not, or not
// any more: a host that does not report would keep it.
func (s *Store) unshare(ctx context.Context) error {
	if s.sharedPools == nil {
		return nil
	}
	type shared struct{ hostID, host, pool string }
	scan := ledger.ScanInto(func(p *shared) []any { return []any{&p.hostID, &p.host, &p.pool} })
	all, err := ledger.QueryAll(ctx, s.db.Read, scan, "SELECT h.id, h.name, p.name FROM pools p JOIN hosts h ON h.id = p.host_id WHERE p.shared = 1")
	if err != nil {
		return err
	}
	return s.ledger.Submit(ctx, func(ctx context.Context, tx *ledger.Tx) error {
		for _, p := range all {
			if s.maySharePool(p.pool, p.hostID, p.host) {
				continue
			}
			if _, err := tx.ExecContext(ctx, "UPDATE pools SET shared = 0 WHERE host_id = ? AND name = ?", p.hostID, p.pool); err != nil {
				return err
			}
		}
		return nil
	})
}

// SharedPools says on whose word pools count as shared: the site's configuration, or
// reports of hosts in this run of the registry.
type SharedPools struct {
	// Confirmed says that the configuration names the shared pools.
	Confirmed bool
	// AnyHost are the pools that the configuration names without their hosts.
	AnyHost []string
	// Reported are the pools that hosts report as shared and that the configuration does
	// not name for them. They count as shared if the configuration names no pool at all. If
	// it does, they do not, and each is listed with its host.
	Reported []string
}

// SharedPools returns on whose word pools count as shared.
func (s *Store) SharedPools() SharedPools {
	out := SharedPools{Confirmed: s.sharedPools != nil}
	for _, pool := range slices.Sorted(maps.Keys(s.sharedPools)) {
		if s.sharedPools[pool] == nil {
			out.AnyHost = append(out.AnyHost, pool)
		}
	}
	for id, host := range s.hosts.Snapshot() {
		for _, p := range host.Pools {
			said := p.Name
			if out.Confirmed {
				said += " of " + host.Row.Name
			}
			settled := out.Confirmed && s.maySharePool(p.Name, id, host.Row.Name)
			if p.Shared && !settled && !slices.Contains(out.Reported, said) {
				out.Reported = append(out.Reported, said)
			}
		}
	}
	slices.Sort(out.Reported)
	return out
}

// inPool selects the places of host ?1 that are not shared yet and are in its pool ?2, or
// below the directory ?3 of that pool. Each half of the union has its own index.
const inPool = `SELECT id FROM locations WHERE scope = ?1 AND pool = ?2 AND pool <> '' AND name <> ''
	UNION SELECT id FROM locations WHERE path > ?3 || '/' AND path < ?3 || '0' AND path <> '' AND ?3 <> '' AND scope = ?1`

// shareLocations makes the places of a host in its shared pools places of all hosts that
// share the pool. A volume may be older than the sharing: a pool becomes shared when its
// second host comes.
//
// Two hosts may each have a volume of the same name there: two images that have become one,
// or that were one image all along. The second of these volumes stays its host's alone, so
// that no other host is given it, and the audit trail names it.
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

// nameLocations gives the places of a host that are known by a path alone their pool, if
// the path is in the directory of one of its pools. A volume may be older than its pool,
// and a registry older than this rule.
func (tx *Tx) nameLocations(ctx context.Context, hostID string, pools []api.Pool) error {
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

// isOfFiles reports whether all that is in the directory of a pool is in the pool, by the name
// that it has there. What is beside the devices of a pool need not be libvirt's: pools of disks and
// of LUNs have directories of the whole host, as /dev, and libvirt knows no thin volumes of a
// volume group. Hosts find out which pool has a device.
func isOfFiles(p api.Pool) bool {
	return slices.Contains([]string{"dir", "fs", "netfs", "vstorage"}, p.Type)
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
