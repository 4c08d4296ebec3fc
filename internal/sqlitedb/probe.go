// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"fmt"
)

// Probe makes a commit that changes nothing, and returns nil once it is on stable storage,
// as any other commit would be. It uses the connection that writes, so it must not be
// called inside a transaction.
func (db *DB) Probe(ctx context.Context) error {
	tx, err := db.Write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a commit: %w", err)
	}
	// SQLite may have rolled back by itself, and after a commit there is nothing to undo.
	defer func() { _ = tx.Rollback() }()
	var version int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	// SQLite writes the page that has it, though it is what it was.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return fmt.Errorf("write schema version: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
