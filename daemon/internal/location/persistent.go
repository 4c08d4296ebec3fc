// SPDX-License-Identifier: Apache-2.0

package location

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// InMemory reports whether a directory is on a tmpfs or ramfs, so that a reboot deletes its files.
// The error wraps unix.ENOENT if it does not exist.
func InMemory(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("look at the filesystem of %s: %w", dir, err)
	}
	return st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC, nil
}

// CheckPersistent refuses a path if a reboot would delete its file: in /dev, where a mistyped
// device name makes a file, and on any other tmpfs or ramfs. It accepts a nonexistent directory.
func CheckPersistent(path string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil //nolint:nilerr // CheckPath has refused it
	}
	inMemory, err := InMemory(dir)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if within(dir+"/x", "/dev") {
		return api.Errorf(api.CodeInvalidArgument, "there is no device %s, and a file made there would be gone with the next reboot", path)
	}
	if inMemory {
		return api.Errorf(api.CodeInvalidArgument, "%s is in memory (tmpfs); a volume there would be gone with the next reboot", path)
	}
	return nil
}

// CheckPoolPersistent makes the check of CheckPersistent for the volumes of a pool of files.
func CheckPoolPersistent(pool hv.PoolInfo) error {
	inMemory, err := InMemory(pool.Path)
	if err == nil && inMemory {
		return api.Errorf(api.CodeInvalidArgument, "pool %s is in memory (tmpfs at %s); a volume there would be gone with the next reboot", pool.Name, pool.Path)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil // the caller checks its free space next
	}
	return err
}
