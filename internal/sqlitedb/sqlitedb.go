// SPDX-License-Identifier: Apache-2.0

// Package sqlitedb opens the SQLite files of Volferry. A file has one process, one connection that
// writes and a pool that reads; each commit is on stable storage before it is acknowledged.
package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/volferry/volferry/internal/atomicfile"
)

// DB is an open database. Both of its connection pools are safe for concurrent use.
type DB struct {
	// Write is the only connection that writes. Its transactions take the write lock when they
	// begin, so they never fail halfway for lack of it.
	Write *sql.DB
	// Read is a pool of read-only connections. A reader sees the last commit and never waits for
	// the writer. Readers should be short: a checkpoint cannot pass the oldest.
	Read *sql.DB
	// MigratedFrom is the path of the VersionBackup that Open made, or "". The backup is never
	// removed.
	MigratedFrom string

	path string
	lock *os.File
}

// Open opens the database at path and migrates it to schema. It creates a missing file with mode
// 0600 in an existing directory. schema[i] is migration i+1, applied once, in its own transaction.
// Open first backs up a database with an older schema to its VersionBackup, and fails if it
// cannot.
//
// Open refuses a file, and leaves it unchanged, if another process has it open, if it is damaged
// or not a database, or if a newer program wrote it.
func Open(ctx context.Context, path string, schema []string) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	db, err := open(ctx, path, schema)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), lock.Close())
	}
	db.path, db.lock = path, lock
	return db, nil
}

func open(ctx context.Context, path string, schema []string) (*DB, error) {
	if err := create(path); err != nil {
		return nil, err
	}
	if err := check(ctx, path, len(schema)); err != nil {
		return nil, err
	}
	if err := os.Chmod(path, fileMode); err != nil {
		return nil, fmt.Errorf("keep others out: %w", err)
	}
	write, err := openPool(ctx, path, "rw", 1)
	if err != nil {
		return nil, err
	}
	backup, err := migrate(ctx, path, write, schema)
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	read, err := openPool(ctx, path, "ro", runtime.NumCPU())
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	return &DB{Write: write, Read: read, MigratedFrom: backup}, nil
}

// Close closes both connection pools and releases the lock.
func (db *DB) Close() error {
	// The last connection copies the log into the file, which a read-only connection cannot.
	return errors.Join(db.Read.Close(), db.Write.Close(), db.lock.Close())
}

// create creates an empty file and makes its name durable. Otherwise SQLite would create the file
// with another mode.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}
