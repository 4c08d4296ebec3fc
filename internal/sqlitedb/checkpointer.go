// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// checkpointAtLast is how long the log gets where a Checkpointer keeps it short, before a
// commit has to do a checkpoint after all: 256 MiB.
const checkpointAtLast = 65536

// Checkpointer writes the log of commits (WAL) into the file on a connection of its own,
// so that commits go on meanwhile. It is safe for concurrent use.
type Checkpointer struct {
	pool  *sql.DB
	write *sql.DB
}

// NewCheckpointer opens the connection. From then on commits leave checkpoints to the
// caller. Close it before the database.
func (db *DB) NewCheckpointer(ctx context.Context) (*Checkpointer, error) {
	pool, err := openPool(ctx, db.path, "rw", 1)
	if err != nil {
		return nil, err
	}
	if _, err := db.Write.ExecContext(ctx, fmt.Sprintf("PRAGMA wal_autocheckpoint = %d", checkpointAtLast)); err != nil {
		return nil, errors.Join(fmt.Errorf("leave checkpoints to the program: %w", err), pool.Close())
	}
	return &Checkpointer{pool: pool, write: db.Write}, nil
}

// Close closes the connection.
func (c *Checkpointer) Close() error { return c.pool.Close() }

// Pending returns how many pages of the log are not in the file.
func (c *Checkpointer) Pending(ctx context.Context) (int, error) {
	return checkpoint(ctx, c.pool, "NOOP")
}

// Checkpoint writes into the file what the log has now, and returns how many pages were
// added to the log meanwhile. It does not wait for readers; pages that they need stay in
// the log.
func (c *Checkpointer) Checkpoint(ctx context.Context) (pending int, err error) {
	return checkpoint(ctx, c.pool, "PASSIVE")
}

// Finish is Checkpoint on the connection that writes, and must not be called inside a
// transaction. Nothing can be added meanwhile, so if no reader is in the way the next
// commit begins the log anew: that keeps the log short.
func (c *Checkpointer) Finish(ctx context.Context) error {
	_, err := checkpoint(ctx, c.write, "PASSIVE")
	return err
}

func checkpoint(ctx context.Context, pool *sql.DB, mode string) (pending int, err error) {
	var busy, pages, written int
	if err := pool.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &pages, &written); err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	return pages - written, nil
}
