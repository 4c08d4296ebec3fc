// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fileMode of every image that is made here: nobody but its owner reads a
// guest's data.
const fileMode = 0o600

// createWhole makes the file at path appear complete and durable, or not at
// all: fill gets the path of an empty file beside it, which is then synced and
// renamed. fs.ErrExist if path exists.
func createWhole(path string, fill func(tmp string) error) error {
	tmp := path + ".new"
	// One left by a crash has never been anything to anybody.
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, fileMode)
	if err != nil {
		return err
	}
	err = errors.Join(f.Close(), fill(tmp))
	if err == nil {
		err = syncPath(tmp)
	}
	if err == nil {
		err = renameNew(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncPath(filepath.Dir(path))
}

// renameNew renames without replacing; fs.ErrExist if newPath exists.
func renameNew(oldPath, newPath string) error {
	err := unix.Renameat2(unix.AT_FDCWD, oldPath, unix.AT_FDCWD, newPath, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// NFS has no such rename; a hard link does not replace either.
		if err = unix.Link(oldPath, newPath); err == nil {
			err = unix.Unlink(oldPath)
		}
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: oldPath, New: newPath, Err: err}
	}
	return nil
}

// syncPath puts a file, block device or directory on stable storage.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return errors.Join(fmt.Errorf("sync %s: %w", path, err), f.Close())
	}
	return f.Close()
}
