// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
)

// fileMode keeps other users from reading the database and SQLite's files in its directory.
const fileMode = 0o600

// busyTimeoutMS is how long a connection waits for another's lock, for example a backup's.
const busyTimeoutMS = 5000

// writeCacheKiB is the size of the writing connection's page cache. A busy registry reads the same
// pages in successive commits.
const writeCacheKiB = 16 << 10

// checkpointPages is the length of the log in pages (16 MiB) after which a commit copies the log
// into the file. That costs the commit two more syncs. With a longer log, more changes of a page
// are copied as one.
const checkpointPages = 4096

func openPool(ctx context.Context, path, mode string, size int) (*sql.DB, error) {
	pool, err := sql.Open("sqlite", dsn(path, mode))
	if err != nil {
		return nil, fmt.Errorf("open connections: %w", err)
	}
	pool.SetMaxOpenConns(size)
	pool.SetMaxIdleConns(size)
	if err := pool.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open connections: %w", err), pool.Close())
	}
	return pool, nil
}

// dsn returns the data source name of path for the driver. synchronous is FULL, because in WAL
// mode NORMAL may lose acknowledged commits at a power cut; group commit makes FULL cheap. The
// journals of savepoints are in memory, because a crash loses the transaction anyway.
func dsn(path, mode string) string {
	q := url.Values{
		"mode":       {mode},
		"_defensive": {"1"},
		"_dqs":       {"0"},
		"_pragma":    {fmt.Sprintf("busy_timeout(%d)", busyTimeoutMS), "foreign_keys(1)"},
	}
	if mode == "rw" {
		q.Set("_txlock", "immediate")
		q["_pragma"] = append(q["_pragma"], "journal_mode(WAL)", "synchronous(FULL)", "temp_store(MEMORY)",
			fmt.Sprintf("cache_size(-%d)", writeCacheKiB), fmt.Sprintf("wal_autocheckpoint(%d)", checkpointPages))
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	return u.String()
}
