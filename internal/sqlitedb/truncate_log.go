// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"errors"
	"fmt"
)

// TruncateLog copies the log of commits into the file and truncates the log file, which otherwise
// keeps its largest size. It does not wait for readers: the next call does the rest. Do not call
// it inside a transaction.
func (db *DB) TruncateLog(ctx context.Context) (err error) {
	conn, err := db.Write.Conn(ctx)
	if err != nil {
		return fmt.Errorf("truncate the log: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	// With a busy timeout the checkpoint would wait for readers, and all commits for the
	// checkpoint.
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
