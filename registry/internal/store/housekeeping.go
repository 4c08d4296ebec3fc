// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// forgetAtOnce is how many old answers are forgotten in one transaction, which
// everybody waits for.
const forgetAtOnce = 2000

// Housekeep writes down what is kept in memory between commits, forgets the
// answers to requests and tasks that nobody will send again, and keeps the
// database's log short. It is for a task that calls it now and then, and once at
// the end. A read-only store is left as it is.
func (s *Store) Housekeep(ctx context.Context) error {
	if s.marks.restored() {
		return nil
	}
	if err := s.flushSightings(ctx); err != nil {
		return err
	}
	oldest := s.now().Add(-keepAnswers).UnixMicro()
	for _, forget := range []string{
		"DELETE FROM idempotency WHERE at_us < ? AND seq IN (SELECT seq FROM idempotency ORDER BY seq LIMIT ?)",
		"DELETE FROM tasks WHERE seq IN (SELECT seq FROM tasks WHERE created_us < ? AND state IN ('done', 'withdrawn') ORDER BY created_us LIMIT ?)",
	} {
		if err := s.forgetOld(ctx, forget, oldest); err != nil {
			return err
		}
	}
	if err := s.forgetEnded(ctx); err != nil {
		return err
	}
	// Beside the writer first: what is left to fold keeps everybody waiting.
	if err := s.folder.fold(ctx); err != nil {
		return err
	}
	return s.writer.pause(ctx, func() error { return s.db.FoldLog(ctx) })
}

// forgetOld runs a statement that deletes what is older, so many rows at once,
// until there is none.
func (s *Store) forgetOld(ctx context.Context, forget string, oldest int64) error {
	for {
		var gone int64
		err := s.writer.submit(ctx, func(ctx context.Context, tx *writeTx) error {
			result, err := tx.ExecContext(ctx, forget, oldest, forgetAtOnce)
			if err != nil {
				return err
			}
			gone, err = result.RowsAffected()
			return err
		})
		if err != nil {
			return fmt.Errorf("forget old answers: %w", err)
		}
		if gone < forgetAtOnce {
			return nil
		}
	}
}

// flushAtOnce is how many hosts are written down in one transaction, which
// everybody waits for.
const flushAtOnce = 200

func (s *Store) flushSightings(ctx context.Context) error {
	sightings := s.hosts.all()
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(sightings)), flushAtOnce) {
		err := s.writer.submit(ctx, func(ctx context.Context, tx *writeTx) error {
			tx.forgetHosts()
			for _, id := range ids {
				if err := sightings[id].flush(ctx, tx, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.hosts.keptPools(ids, sightings)
	}
	return nil
}

func (s sighting) flush(ctx context.Context, tx *writeTx, hostID string) error {
	if _, err := tx.ExecContext(ctx, "UPDATE hosts SET last_seen_us = ? WHERE id = ?", s.at.UnixMicro(), hostID); err != nil {
		return fmt.Errorf("flush host: %w", err)
	}
	if s.poolsKept.Equal(s.poolsAt) {
		return nil
	}
	for _, p := range s.pools {
		if _, err := tx.ExecContext(ctx, "UPDATE pools SET capacity_bytes = ?, free_bytes = ?, updated_us = ? WHERE host_id = ? AND name = ?",
			p.CapacityBytes, p.FreeBytes, s.poolsAt.UnixMicro(), hostID, p.Name); err != nil {
			return fmt.Errorf("flush pool: %w", err)
		}
	}
	return nil
}
