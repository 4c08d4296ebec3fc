// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces and removes small files. After a power cut a file has either its old
// or its new content.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Write replaces the file at path by a file with this data and exactly this mode. When it returns
// nil, content and name are on stable storage. After an error the file is unchanged, or new if
// only the final sync of the directory failed. On a full disk Write uses the directory's Reserve,
// if any.
func Write(path string, data []byte, mode os.FileMode) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	d := Directory{file: dir, path: dir.Name()}
	return errors.Join(d.Write(filepath.Base(path), data, mode), d.Close())
}

// Sweep removes the temporary files that interrupted calls of Write left in dir. Meanwhile no
// other process may write files in dir.
func Sweep(dir string) error { return sweep(dir, time.Time{}) }

// SweepOld is Sweep for a directory that other processes may write to: it keeps files younger than
// an hour.
func SweepOld(dir string) error { return sweep(dir, time.Now().Add(-unfinishedFor)) }

func sweep(dir string, olderThan time.Time) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sweep directory: %w", err)
	}
	d := Directory{file: f, path: dir}
	return errors.Join(d.sweep(olderThan), d.Close())
}

// Remove removes the file at path, durably. For an absent file it only syncs the directory, after
// an interrupted Remove.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove file: %w", err)
	}
	dir := filepath.Dir(path)
	if err := SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SyncDir makes the creation, renaming and removal of files in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}
