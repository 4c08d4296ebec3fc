// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func (h host) written(path string) (bool, error) {
	f, err := h.Open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
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
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	case errors.Is(err, unix.EACCES):
		return false, fmt.Errorf("ask for a lease of %s: %w (volferryd needs the capability CAP_LEASE for a file of another user)", path, err)
	}
	return false, fmt.Errorf("ask for a lease of %s: %w", path, err)
}

func onNFS(f *os.File) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false, &os.PathError{Op: "statfs", Path: f.Name(), Err: err}
	}
	return st.Type == unix.NFS_SUPER_MAGIC, nil
}
