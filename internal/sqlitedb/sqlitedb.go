// SPDX-License-Identifier: Apache-2.0

// Package sqlitedb opens the SQLite files that Volferry keeps its truths in:
// one connection that writes, a pool that reads, every commit on stable
// storage before it is acknowledged, one process per file. It owns how a file
// is opened, checked and migrated, and knows nothing of what is in its tables.
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

// DB is an open database. Both pools are safe for concurrent use.
type DB struct {
	// Write is the one connection that may change something. Its transactions
	// take the write lock when they begin, so they never fail half way for
	// want of it.
	Write *sql.DB
	// Read is a pool of read-only connections. A reader sees the last commit
	// and never waits for the writer; it should be short, because the log
	// cannot be written into the file past the oldest reader.
	Read *sql.DB
	// MigratedFrom is the path of the backup that was made when the database was opened,
	// because it had an older schema; "" if it had not. The backup is never removed.
	MigratedFrom string

	path string
	lock *os.File
}

// Open opens the database at path, creating it with mode 0600 if it is missing
// (its directory must exist), and brings it to the given schema: schema[i] is
// migration i+1, which is applied once, in a transaction of its own. A database that
// has an older schema is backed up before, to its VersionBackup; where that
// cannot be done it is not opened.
//
// A file that another process has open, that is no database, that is damaged,
// or that a newer program wrote is refused, and is left as it was.
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

// Close closes both pools and lets other processes open the file.
func (db *DB) Close() error {
	// The writer goes last: the last connection to close writes the log back
	// into the file, and a read-only one cannot.
	return errors.Join(db.Read.Close(), db.Write.Close(), db.lock.Close())
}

// create makes an empty file with the right mode before SQLite can make one
// with the wrong mode, and makes its name durable.
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
