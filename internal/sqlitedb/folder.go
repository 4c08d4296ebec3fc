// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// foldAtLast is how long the log gets where a Folder folds it, before a commit has
// to do so after all: 256 MiB.
const foldAtLast = 65536

// Folder folds the log of commits into the file on a connection of its own, so that
// commits go on meanwhile. It is safe for concurrent use.
type Folder struct {
	pool  *sql.DB
	write *sql.DB
}

// NewFolder opens the connection. From then on commits leave the folding to the
// caller. Close must be called before that of the database.
func (db *DB) NewFolder(ctx context.Context) (*Folder, error) {
	pool, err := openPool(ctx, db.path, "rw", 1)
	if err != nil {
		return nil, err
	}
	if _, err := db.Write.ExecContext(ctx, fmt.Sprintf("PRAGMA wal_autocheckpoint = %d", foldAtLast)); err != nil {
		return nil, errors.Join(fmt.Errorf("leave the folding of the log: %w", err), pool.Close())
	}
	return &Folder{pool: pool, write: db.Write}, nil
}

// Close closes the connection.
func (f *Folder) Close() error { return f.pool.Close() }

// Left returns how many pages of the log are not in the file.
func (f *Folder) Left(ctx context.Context) (int, error) { return checkpoint(ctx, f.pool, "NOOP") }

// Fold folds what the log has now, and returns what was added meanwhile. Readers are
// not waited for; what they need stays.
func (f *Folder) Fold(ctx context.Context) (left int, err error) {
	return checkpoint(ctx, f.pool, "PASSIVE")
}

// FoldRest is Fold on the connection that writes, and must not be called inside a
// transaction. As nothing can be added meanwhile, the next commit begins the log anew
// if no reader is in the way: that is what keeps it short.
func (f *Folder) FoldRest(ctx context.Context) error {
	_, err := checkpoint(ctx, f.write, "PASSIVE")
	return err
}

func checkpoint(ctx context.Context, pool *sql.DB, mode string) (left int, err error) {
	var busy, pages, folded int
	if err := pool.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &pages, &folded); err != nil {
		return 0, fmt.Errorf("fold the log: %w", err)
	}
	return pages - folded, nil
}
