// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"errors"
	"fmt"
)

// TruncateLog writes the log of commits into the file and empties it, so that the log file
// does not stay as long as it ever was. It does not wait for readers: the next call does
// the rest. It uses the connection that writes, so it must not be called inside a
// transaction.
func (db *DB) TruncateLog(ctx context.Context) (err error) {
	conn, err := db.Write.Conn(ctx)
	if err != nil {
		return fmt.Errorf("truncate the log: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	// With a busy timeout the checkpoint would wait for readers, and every change for it.
	if _, err := conn.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return fmt.Errorf("truncate the log: %w", err)
	}
	var busy, frames, written int
	err = conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &written)
	_, restored := conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA busy_timeout = %d", busyTimeoutMS))
	if err := errors.Join(err, restored); err != nil {
		return fmt.Errorf("truncate the log: %w", err)
	}
	return nil
}
