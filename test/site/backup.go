// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Backup copies the database as an operator does, and returns the file. The registry runs
// meanwhile, or not.
func (r *Registry) Backup(ctx context.Context) (file string, err error) {
	r.backups++
	file = filepath.Join(r.Dir, fmt.Sprintf("backup-%d.db", r.backups))
	return file, r.onDatabase(ctx, "backup", file)
}

// PutBack stops the registry, replaces its database by a backup, and starts it again.
func (r *Registry) PutBack(ctx context.Context, file string) error {
	r.Stop()
	for _, left := range []string{"-wal", "-shm"} {
		if err := os.RemoveAll(r.DB() + left); err != nil {
			return fmt.Errorf("put a backup back: %w", err)
		}
	}
	old, err := os.ReadFile(file)
	if err := errors.Join(err, os.WriteFile(r.DB(), old, 0o600)); err != nil {
		return fmt.Errorf("put a backup back: %w", err)
	}
	return r.Start(ctx)
}

// AcceptRestore says that the backup was looked into. The registry is stopped for that.
func (r *Registry) AcceptRestore(ctx context.Context) error {
	r.Stop()
	if err := r.onDatabase(ctx, "accept-restore", "--evidence", "the test compared all"); err != nil {
		return err
	}
	return r.Start(ctx)
}

// onDatabase runs a command on the database, which reads no configuration of the machine.
func (r *Registry) onDatabase(ctx context.Context, args ...string) error {
	config, err := emptyConfig(r.Dir)
	if err != nil {
		return err
	}
	_, err = r.Run(ctx, append(args, "--config", config, "--db", r.DB())...)
	return err
}
