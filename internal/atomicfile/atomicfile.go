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

// temporary is in the name of a file that Write fills, before a random number.
const temporary = ".tmp-"

// Write puts data into the file at path, with exactly this mode whatever the
// umask, in place of what was there. When it returns nil both content and name
// are on stable storage. On error the file is as it was, unless the error is of
// the last fsync of the directory: then it may be either. On a full disk it uses the
// Reserve of the directory, if there is one.
func Write(path string, data []byte, mode os.FileMode) error {
	return UseReserve(path, IsFull, func() error { return write(path, data, mode) })
}

func write(path string, data []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	// The leading dot and no suffix of a kind: whoever reads the directory by
	// pattern does not take the file that a crash leaves behind for a real one.
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+temporary+"*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fill(f, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return SyncDir(dir)
}

// fill writes, syncs and closes f.
func fill(f *os.File, data []byte, mode os.FileMode) error {
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Chmod(mode), f.Sync(), f.Close())
}

// Sweep removes what every Write that a crash cut off has left in dir. Nobody may write
// files of dir meanwhile.
func Sweep(dir string) error { return sweep(dir, time.Time{}) }

// unfinishedFor is longer than any Write takes that has not been cut off.
const unfinishedFor = time.Hour

// SweepOld is Sweep of a directory in which others may write files meanwhile: what is not
// old stays.
func SweepOld(dir string) error { return sweep(dir, time.Now().Add(-unfinishedFor)) }

// sweep is Sweep of what is older than that, if it is not zero.
func sweep(dir string, olderThan time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweep directory: %w", err)
	}
	for _, e := range entries {
		left, _ := filepath.Match(".*"+temporary+"*", e.Name()) // the pattern is no bad one
		if !left || !olderThan.IsZero() && !isOlder(e, olderThan) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep directory: %w", err)
		}
	}
	return nil
}

func isOlder(e fs.DirEntry, than time.Time) bool {
	info, err := e.Info()
	return err == nil && info.ModTime().Before(than)
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
