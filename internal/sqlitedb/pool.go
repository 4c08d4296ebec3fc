// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
)

// fileMode is the mode of the database and of the files SQLite makes beside
// it: they hold who may use what and are nobody else's business.
const fileMode = 0o600

// busyTimeoutMS is how long a connection waits for another that is in its way,
// for example a backup.
const busyTimeoutMS = 5000

// writeCacheKiB is how much of the file the connection that writes may keep in
// memory: what a busy registry looks up in one commit after the other.
const writeCacheKiB = 16 << 10

// checkpointPages is how long the log of commits gets before a commit writes it into the
// file: 16 MiB. That costs the commit two more writes to stable storage. In a longer log
// more changes of a page become one write of it.
const checkpointPages = 4096

// openPool opens path with at most size connections, and opens the first of
// them now so that an error comes from here.
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

// dsn names path for the driver. FULL, because in WAL mode NORMAL may lose
// acknowledged commits at a power cut; group commit makes it cheap. What a
// savepoint would undo needs no file: it is gone with the transaction.
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
