// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

// Written reports whether some process of this host has a file open for writing: the kernel grants
// no read lease on such a file. On NFS it reports whether QEMU has, on whatever host, by its locks:
// what leases the kernel grants there depends on what the server lends this host. For devices, and
// on a filesystem without leases, this is unknown: false. So it is for an export. An error means
// that the kernel should know and has not answered.
func (s Storage) Written(_ context.Context, path string) (bool, error) {
	if api.IsNetwork(path) {
		return false, nil
	}
	f, err := s.Files.Open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // and with it the lease
	nfs, err := onNFS(f)
	if err != nil {
		return false, err
	}
	if nfs {
		locks, err := locksOf(f)
		return locks.Writes, err
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, unix.EAGAIN):
		return true, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP): // there are no leases here
		return false, nil
	case errors.Is(err, unix.EACCES):
		return false, fmt.Errorf("ask for a lease of %s: %w (volferryd needs the capability CAP_LEASE for a file of another user)", path, err)
	}
	return false, fmt.Errorf("ask for a lease of %s: %w", path, err)
}

// onNFS reports whether an open file is on NFS.
func onNFS(f *os.File) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false, &os.PathError{Op: "statfs", Path: f.Name(), Err: err}
	}
	return st.Type == unix.NFS_SUPER_MAGIC, nil
}
