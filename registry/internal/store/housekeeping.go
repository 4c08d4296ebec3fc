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

// Housekeep writes down what is kept in memory between commits, forgets the
// answers to requests that nobody will send again, and keeps the
// database's log short. It is for a task that calls it now and then, and once at
// the end. A read-only store is left as it is.
func (s *Store) Housekeep(ctx context.Context) error {
	if s.history.Restored() {
		return nil
	}
	if err := s.flushHosts(ctx); err != nil {
		return err
	}
	if err := s.ledger.ExpireAnswers(ctx); err != nil {
		return err
	}
	if err := s.dropFinished(ctx); err != nil {
		return err
	}
	return s.ledger.Checkpoint(ctx)
}

// flushAtOnce is how many hosts are written down in one transaction, which
// everybody waits for.
const flushAtOnce = 200

func (s *Store) flushHosts(ctx context.Context) error {
	states := s.hosts.Snapshot()
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(states)), flushAtOnce) {
		err := s.ledger.Submit(ctx, func(ctx context.Context, tx *ledger.Tx) error {
			s.cache.hosts.invalidate()
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
		s.hosts.PoolsFlushed(ids, states)
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
