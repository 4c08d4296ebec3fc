// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/volferry/volferry/internal/atomicfile"
)

// Backup copies the database at path, as of its last commit, to the new file dst with mode 0600.
// When it returns nil, the copy is checked and on stable storage. Another process may have the
// database open. Backup never replaces dst, and removes dst if it fails.
func Backup(ctx context.Context, path, dst string) (err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("back up %s: %w", path, err)
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	if dst, err = filepath.Abs(dst); err != nil {
		return fmt.Errorf("back up %s: %w", path, err)
	}
	// Created here for its mode; SQLite fills an empty file.
	f, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return fmt.Errorf("back up to: %w", err)
	}
	if err := errors.Join(fillBackup(ctx, path, dst), f.Sync(), f.Close(), atomicfile.SyncDir(filepath.Dir(dst))); err != nil {
		return errors.Join(fmt.Errorf("back up %s: %w", path, err), os.Remove(dst))
	}
	return nil
}

func fillBackup(ctx context.Context, path, dst string) error {
	pool, err := openPool(ctx, path, "ro", 1)
	if err != nil {
		return saysDamaged(err)
	}
	_, err = pool.ExecContext(ctx, "VACUUM INTO ?", dst)
	if err := errors.Join(err, pool.Close()); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	backup, err := openPool(ctx, dst, "ro", 1)
	if err != nil {
		return fmt.Errorf("check the copy: %w", err)
	}
	return errors.Join(quickCheck(ctx, backup), backup.Close())
}
