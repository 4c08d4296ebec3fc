// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"maps"
	"slices"

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

// maySharePool says whether the site lets a host share the pools of a name. A pool that
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
	scan := func(row ledger.Scanner) (p shared, err error) { return p, row.Scan(&p.hostID, &p.host, &p.pool) }
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

// SharedPools is on whose word pools are shared: that of hosts in this run of the
// registry, or the site's.
type SharedPools struct {
	// Confirmed says that the site has named its shared pools.
	Confirmed bool
	// AnyHost are those that it has named without saying which hosts share them.
	AnyHost []string
	// Reported are the pools that hosts report as shared and the site has not named for
	// them: they are shared as long as it has named none, and are not if it has. Where it
	// has, the host is said as well.
	Reported []string
}

// SharedPools returns on whose word pools are shared.
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
