// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// minVersion is the first SQLite without the WAL reset bug that could lose committed transactions
// (sqlite.org/wal.html).
var minVersion = [3]int{3, 51, 3}

// check refuses an unusable file. It runs before anything may write to the file, which must stay
// unchanged for its repair.
func check(ctx context.Context, path string, newest int) (err error) {
	pool, err := openPool(ctx, path, checkMode(path), 1)
	if err != nil {
		return saysDamaged(err)
	}
	defer func() { err = errors.Join(err, pool.Close()) }()

	if err := checkLibrary(ctx, pool); err != nil {
		return err
	}
	if err := quickCheck(ctx, pool); err != nil {
		return err
	}
	have, err := userVersion(ctx, pool)
	if err != nil {
		return err
	}
	if have > newest {
		return fmt.Errorf("it has schema version %d and this program knows %d: it was written by a newer Volferry; use that version, or restore a backup", have, newest)
	}
	return nil
}

// checkMode returns how check opens the file: read-only, unless a process died while it converted
// a new file into a WAL database. Then a rollback journal exists, which only a writer may play
// back.
func checkMode(path string) string {
	if _, err := os.Stat(path + "-journal"); err == nil {
		return "rw"
	}
	return "ro"
}

func checkLibrary(ctx context.Context, pool *sql.DB) error {
	var version string
	if err := pool.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return fmt.Errorf("read SQLite version: %w", err)
	}
	var v [3]int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil {
		return fmt.Errorf("read SQLite version %q: %w", version, err)
	}
	for i := range v {
		if v[i] != minVersion[i] {
			if v[i] < minVersion[i] {
				return fmt.Errorf("this program was built with SQLite %s; it needs %d.%d.%d", version, minVersion[0], minVersion[1], minVersion[2])
			}
			return nil
		}
	}
	return nil
}

func quickCheck(ctx context.Context, pool *sql.DB) (err error) {
	rows, err := pool.QueryContext(ctx, "PRAGMA quick_check(5)")
	if err != nil {
		return saysDamaged(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var found []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return saysDamaged(err)
		}
		if line != "ok" {
			found = append(found, line)
		}
	}
	if err := rows.Err(); err != nil {
		return saysDamaged(err)
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %s", errDamaged, strings.Join(found, "; "))
	}
	return nil
}

var errDamaged = errors.New("it is damaged or is no database, and was left as it is; restore a backup")

func saysDamaged(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) {
		// The low byte is the primary code.
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	return err
}

func userVersion(ctx context.Context, pool *sql.DB) (int, error) {
	var v int
	if err := pool.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	return v, nil
}
