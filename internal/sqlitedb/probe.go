// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"fmt"
)

// Probe commits a transaction that changes nothing, and returns nil once the commit is on stable
// storage. It must not be called inside a transaction.
func (db *DB) Probe(ctx context.Context) error {
	tx, err := db.Write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a commit: %w", err)
	}
	// Ignore an error: SQLite may have rolled back already, and after Commit there is no
	// transaction.
	defer func() { _ = tx.Rollback() }()
	var version int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	// SQLite writes the page although the value is the same.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return fmt.Errorf("write schema version: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
