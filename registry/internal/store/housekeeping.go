// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"
)

// Housekeep writes down what is kept in memory between commits, and forgets
// the answers to requests that nobody will send again. It is for a task that
// calls it now and then, and once at the end.
func (s *Store) Housekeep(ctx context.Context) error {
	sightings := s.hosts.all()
	oldest := s.now().Add(-keepAnswers).UnixMicro()
	return s.writer.submit(ctx, func(ctx context.Context, tx *writeTx) error {
		for id, seen := range sightings {
			if err := seen.flush(ctx, tx, id); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM idempotency WHERE at_us < ?", oldest); err != nil {
			return fmt.Errorf("forget old answers: %w", err)
		}
		return nil
	})
}

func (s sighting) flush(ctx context.Context, tx *writeTx, hostID string) error {
	at := s.at.Truncate(time.Microsecond).UnixMicro()
	if _, err := tx.ExecContext(ctx, "UPDATE hosts SET last_seen_us = ? WHERE id = ?", at, hostID); err != nil {
		return fmt.Errorf("flush host: %w", err)
	}
	for _, p := range s.pools {
		if _, err := tx.ExecContext(ctx, "UPDATE pools SET capacity_bytes = ?, free_bytes = ?, updated_us = ? WHERE host_id = ? AND name = ?",
			p.CapacityBytes, p.FreeBytes, at, hostID, p.Name); err != nil {
			return fmt.Errorf("flush pool: %w", err)
		}
	}
	return nil
}
