// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/volferry/volferry/internal/atomicfile"
)

// migrate applies the missing migrations. Schema and version change in the same transaction, so a
// crash leaves both old or both new. It first makes a backup, since there is no migration back,
// and returns its path.
func migrate(ctx context.Context, path string, write *sql.DB, schema []string) (backup string, err error) {
	have, err := userVersion(ctx, write)
	if err != nil {
		return "", err
	}
	if have > 0 && have < len(schema) {
		if backup, err = backUpVersion(ctx, path, have); err != nil {
			return "", fmt.Errorf("it has schema version %d, and is brought to %d only after a backup, which cannot be made; nothing was changed: %w", have, len(schema), err)
		}
	}
	for i := have; i < len(schema); i++ {
		if err := applyMigration(ctx, write, i+1, schema[i]); err != nil {
			return "", fmt.Errorf("migrate to schema version %d: %w", i+1, err)
		}
	}
	return backup, nil
}

// VersionBackup returns the path of the backup that is made before the schema of the database at
// path is migrated from this version.
func VersionBackup(path string, version int) string {
	return fmt.Sprintf("%s.schema-%d", path, version)
}

// backUpVersion makes the VersionBackup of a database. It replaces an earlier backup, which has no
// other commits. The file is complete or does not exist.
func backUpVersion(ctx context.Context, path string, version int) (string, error) {
	final := VersionBackup(path, version)
	partial := final + ".partial"
	// A process has died. The database lock excludes other processes.
	if err := os.Remove(partial); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("remove an unfinished backup: %w", err)
	}
	if err := Backup(ctx, path, partial); err != nil {
		return "", err
	}
	if err := os.Rename(partial, final); err != nil {
		return "", errors.Join(fmt.Errorf("name the backup: %w", err), os.Remove(partial))
	}
	return final, atomicfile.SyncDir(filepath.Dir(final))
}

func applyMigration(ctx context.Context, write *sql.DB, version int, statements string) error {
	tx, err := write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, statements); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	// A PRAGMA takes no parameters, and version is a number.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
