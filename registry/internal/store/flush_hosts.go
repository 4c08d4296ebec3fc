// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// flushAtOnce bounds the hosts in one transaction; every other change waits for it.
const flushAtOnce = 200

func (s *Hosts) flush(ctx context.Context) error {
	states := s.db.hosts.Snapshot()
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(states)), flushAtOnce) {
		err := s.db.ledger.Submit(ctx, func(ctx context.Context, tx *ledger.Tx) error {
			s.db.cache.hosts.invalidate()
			for _, id := range ids {
				if err := flushHost(ctx, tx, id, states[id]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.db.hosts.PoolsFlushed(ids, states)
	}
	return nil
}

func flushHost(ctx context.Context, tx *ledger.Tx, hostID string, h hostcache.State) error {
	if _, err := tx.ExecContext(ctx, "UPDATE hosts SET last_seen_us = ? WHERE id = ?", h.LastSeen.UnixMicro(), hostID); err != nil {
		return fmt.Errorf("flush host: %w", err)
	}
	if h.PoolsFlushed.Equal(h.PoolsAt) {
		return nil
	}
	for _, p := range h.Pools {
		if _, err := tx.ExecContext(ctx, "UPDATE pools SET capacity_bytes = ?, free_bytes = ?, updated_us = ? WHERE host_id = ? AND name = ?",
			p.CapacityBytes, p.FreeBytes, h.PoolsAt.UnixMicro(), hostID, p.Name); err != nil {
			return fmt.Errorf("flush pool: %w", err)
		}
	}
	return nil
}
