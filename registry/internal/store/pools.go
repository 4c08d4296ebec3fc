// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// replace stores a host's pools. Volumes in a pool that is now shared become visible to all hosts
// with the pool.
func (tx poolTx) replace(ctx context.Context, hostID string, pools []api.Pool) error {
	if pools == nil {
		return nil
	}
	before, err := tx.sharedBefore(ctx, hostID)
	if err != nil {
		return err
	}
	if err := tx.Exec(ctx, "DELETE FROM pools WHERE host_id = ?", hostID); err != nil {
		return err
	}
	for _, p := range pools {
		if err := tx.Exec(ctx, `INSERT INTO pools (host_id, name, type, path, shared, multiattach, active, capacity_bytes, free_bytes, updated_us)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			hostID, p.Name, p.Type, p.Path, p.Shared, p.Multiattach, p.Active, p.CapacityBytes, p.FreeBytes, tx.At.UnixMicro()); err != nil {
			return err
		}
	}
	if err := tx.nameLocations(ctx, hostID, pools); err != nil {
		return err
	}
	if err := tx.shareLocations(ctx, hostID, pools); err != nil {
		return err
	}
	for _, p := range pools {
		if p.Shared && !slices.Contains(before, p.Name) {
			if err := tx.auditUnshared(ctx, hostID, p); err != nil {
				return err
			}
		}
	}
	return nil
}

const poolQuery = `SELECT p.host_id, h.name, p.name, p.type, p.path, p.shared, p.multiattach, p.active, p.capacity_bytes, p.free_bytes, p.updated_us
	FROM pools p JOIN hosts h ON h.id = p.host_id`

// All returns the pools of every host, by name and host.
func (s *Pools) All(ctx context.Context) ([]api.Pool, error) {
	return ledger.ReadAll(ctx, s.db.sqlite.Read, s.scan, poolQuery+" ORDER BY p.name, h.name")
}

// Get returns the pool called name on the host that hostRef names. hostRef may be empty for the
// pool of one host, or a shared pool.
func (s *Pools) Get(ctx context.Context, name, hostRef string) (api.Pool, error) {
	host := ""
	if hostRef != "" {
		var err error
		if host, err = Resolve(ctx, s.db.sqlite.Read, KindHost, hostRef); err != nil {
			return api.Pool{}, err
		}
	}
	found, err := ledger.ReadAll(ctx, s.db.sqlite.Read, s.scan, poolQuery+" WHERE p.name = ?1 AND ?2 IN ('', p.host_id) ORDER BY h.name", name, host)
	if err != nil {
		return api.Pool{}, err
	}
	switch len(found) {
	case 0:
		return api.Pool{}, api.NotFound("pool", name)
	case 1:
		return found[0], nil
	}
	if p, ok := api.OneShared(found); ok && hostRef == "" {
		return p, nil
	}
	hosts := make([]string, 0, len(found))
	for _, p := range found {
		hosts = append(hosts, p.Host)
	}
	return api.Pool{}, api.Errorf(api.CodeInvalidArgument, "%d hosts have a pool %s; say which host", len(found), name).With("hosts", hosts)
}

func (s *Pools) scan(row ledger.Scanner) (api.Pool, error) {
	var (
		p       api.Pool
		hostID  string
		updated int64
	)
	err := row.Scan(&hostID, &p.Host, &p.Name, &p.Type, &p.Path, &p.Shared, &p.Multiattach, &p.Active, &p.CapacityBytes, &p.FreeBytes, &updated)
	p.UpdatedAt = ledger.FromMicros(updated)
	s.fill(hostID, &p)
	return p, err
}

// fill adds the last reported sizes and uses. A silent host's sizes are stale, and its uses are
// unknown.
func (s *Pools) fill(hostID string, p *api.Pool) {
	reported := s.db.hosts.FillPool(hostID, p)
	last, seen := s.db.hosts.LastSeen(hostID)
	switch {
	case !reported:
		p.Stale = true
		p.Uses = append(p.Uses, api.PoolUse{Unknown: "the host has not reported since the registry started"})
	case !seen || !s.db.isUp(hostID, last):
		p.Stale = true
		p.Uses = append(p.Uses, api.PoolUse{Unknown: "the host was last heard of at " + last.UTC().Format(time.RFC3339)})
	}
	for i := range p.Uses {
		p.Uses[i].Host = p.Host
	}
}

// CheckPoolKnown returns not_found if no host has reported a pool of this name.
func CheckPoolKnown(ctx context.Context, q ledger.Querier, name string) error {
	var known bool
	if err := q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pools WHERE name = ?)", name).Scan(&known); err != nil {
		return fmt.Errorf("look up pool: %w", err)
	}
	if !known {
		return api.NotFound("pool", name)
	}
	return nil
}

// CheckPoolActive returns state_forbidden if no host last reported the pool as active: no volume
// can be moved there.
func CheckPoolActive(ctx context.Context, q ledger.Querier, name string) error {
	var active bool
	if err := q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pools WHERE name = ? AND active)", name).Scan(&active); err != nil {
		return fmt.Errorf("look up pool: %w", err)
	}
	if !active {
		return api.Errorf(api.CodeStateForbidden, "pool %s is active on no host: start it where it is to be (`%s`); its host reports it within seconds",
			validate.Clip(name), shell.Line("virsh", "pool-start", "--", validate.Clip(name)))
	}
	return nil
}
