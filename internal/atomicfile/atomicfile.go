// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces and removes small files so that after a power
// loss a file is either as before or as after, never in between. It owns the
// order of write, fsync and rename; it knows nothing of what is in the files.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Write puts data into the file at path, with exactly this mode whatever the
// umask, in place of what was there. When it returns nil both content and name
// are on stable storage. On error the file is as it was, unless the error is of
// the last fsync of the directory: then it may be either. On a full disk it uses the
// Reserve of the directory, if there is one.
func Write(path string, data []byte, mode os.FileMode) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	d := Directory{file: dir, path: dir.Name()}
	return errors.Join(d.Write(filepath.Base(path), data, mode), d.Close())
}

// Sweep removes what every Write that a crash cut off has left in dir. No other process may write
// files of dir meanwhile.
func Sweep(dir string) error { return sweep(dir, time.Time{}) }

// SweepOld is Sweep of a directory in which others may write files meanwhile: what is not
// old stays.
func SweepOld(dir string) error { return sweep(dir, time.Now().Add(-unfinishedFor)) }

func sweep(dir string, olderThan time.Time) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sweep directory: %w", err)
	}
	d := Directory{file: f, path: dir}
	return errors.Join(d.sweep(olderThan), d.Close())
}

// Remove removes the file at path, durably. A file that is absent is no error;
// its absence is made durable all the same, since an earlier Remove may have
// been cut off before that.
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

// SyncDir makes the names in a directory durable: those that were created,
// renamed and removed.
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
