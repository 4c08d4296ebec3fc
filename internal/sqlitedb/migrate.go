// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// migrate applies the migrations that the database does not have yet. Schema
// and version change in the same transaction, so a crash leaves either both or
// neither.
func migrate(ctx context.Context, write *sql.DB, schema []string) error {
	have, err := userVersion(ctx, write)
	if err != nil {
		return err
	}
	for i := have; i < len(schema); i++ {
		if err := applyMigration(ctx, write, i+1, schema[i]); err != nil {
			return fmt.Errorf("migrate to schema version %d: %w", i+1, err)
		}
	}
	return nil
}

func applyMigration(ctx context.Context, write *sql.DB, version int, statements string) error {
	tx, err := write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, statements); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	// A PRAGMA takes no parameters; version is a number of ours.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
