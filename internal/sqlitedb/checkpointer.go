// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// checkpointAtLast is the length of the log in pages (256 MiB) after which a commit does a
// checkpoint although a Checkpointer exists.
const checkpointAtLast = 65536

// Checkpointer copies the log of commits (WAL) into the database file on its own connection, so
// that commits need not wait. It is safe for concurrent use.
type Checkpointer struct {
	pool  *sql.DB
	write *sql.DB
}

// NewCheckpointer returns a Checkpointer for the database. From then on the caller makes the
// checkpoints; commits make none. Close the Checkpointer before the database.
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

// Pending returns how many pages of the log are not in the file yet.
func (c *Checkpointer) Pending(ctx context.Context) (int, error) {
	return checkpoint(ctx, c.pool, "NOOP")
}

// Checkpoint copies the present log into the file without waiting for readers. It returns how many
// pages are not copied: new pages, and pages that readers still need.
func (c *Checkpointer) Checkpoint(ctx context.Context) (pending int, err error) {
	return checkpoint(ctx, c.pool, "PASSIVE")
}

// Finish is Checkpoint on the writing connection; call it outside of a transaction. No commit can
// extend the log meanwhile, so the next one starts the log from the beginning, unless a reader
// needs it.
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
