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

// migrate applies the migrations that the database does not have yet. Schema
// and version change in the same transaction, so a crash leaves either both or
// neither. What the database was before the first of them is kept in a file, whose name
// it returns: there is no migration back.
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

// VersionBackup returns the path of the backup that is made beside the database at path
// before its schema is brought from this version to a later one.
func VersionBackup(path string, version int) string {
	return fmt.Sprintf("%s.schema-%d", path, version)
}

// backUpVersion makes the VersionBackup of a database. There is one of each version: the
// last, as an older one lacks what was committed since. It is whole under its name or not
// there.
func backUpVersion(ctx context.Context, path string, version int) (string, error) {
	final := VersionBackup(path, version)
	partial := final + ".partial"
	// Of a process that died. The lock of the database keeps others away.
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
	// A PRAGMA takes no parameters; version is a number of ours.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
