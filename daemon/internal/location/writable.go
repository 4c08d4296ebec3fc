// SPDX-License-Identifier: Apache-2.0

package location

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// access is a variable for the tests, which cannot make a read-only mount.
var access = unix.Access

// CheckWritable refuses (permission_denied) a file if the mount of its directory is read-only for
// this process. In the packaged unit that is every directory that the unit does not name; the
// message explains how to name one. It accepts block devices, and a file in an absent directory.
func CheckWritable(path string) error {
	if !medium.Of(path).Filesystem {
		return nil // a read-only mount does not prevent connections to a socket
	}
	real, err := resolve(path)
	if err != nil {
		return nil //nolint:nilerr // CheckPath has refused it
	}
	if device, err := isDevice(real); err != nil || device {
		return nil //nolint:nilerr // the program that opens it reports this
	}
	return CheckWritableDir(filepath.Dir(real))
}

// CheckWritableDir is CheckWritable for files in a directory.
func CheckWritableDir(dir string) error {
	if !errors.Is(access(dir, unix.W_OK), unix.EROFS) {
		return nil
	}
	if table, err := os.ReadFile(mountInfo); err == nil && readOnlyFilesystem(string(table), dir) {
		return api.Errorf(api.CodePermissionDenied, "volferryd can write nothing in %s: its filesystem is mounted read-only; `mount -o remount,rw` it", dir).With("path", dir)
	}
	if hidden := hiddenByUnit(dir); hidden != "" && !inAny(temporaryDirs, dir) {
		return api.Errorf(api.CodePermissionDenied, "volferryd can write nothing in %s%s", dir, hidden).With("path", dir)
	}
	return api.Errorf(api.CodePermissionDenied,
		"volferryd can write nothing in %s: its systemd unit allows writes only in the directories of ReadWritePaths=. Run `systemctl edit volferryd.service`, add the lines [Service] and ReadWritePaths=%[1]s, and restart volferryd", dir).
		With("path", dir)
}

// readOnlyFilesystem reports whether the filesystem of a directory is read-only, and not only the
// mount, as in the namespace of a unit.
func readOnlyFilesystem(table, dir string) bool {
	m, found := mountOf(table, dir)
	return found && m.readOnly
}
