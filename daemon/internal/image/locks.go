// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Locks is the state of the locks that QEMU takes on each file that it opens. On a shared
// filesystem such as NFS 4 other hosts see the locks, unless it is mounted with local locks.
type Locks struct {
	// Open is true if a QEMU has the file open, on this host or another.
	Open bool
	// Writes is true if a QEMU may write to the file.
	Writes bool
}

// QEMU locks one byte of a file for each permission that it may need, from lockMayBase on, and one
// for each permission that it denies to others, from lockOthersBase on (block/file-posix.c).
// libvirt uses lower bytes.
const (
	lockMayBase    = 100
	lockOthersBase = 200
	lockBytes      = 64
	lockMayWrite   = 1
)

func (h host) locks(path string) (Locks, error) {
	var locks Locks
	err := answered("QEMU has "+path+" open", func() (err error) {
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() {
			return err
		}
		f, err := h.Open(path, os.O_RDONLY)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		locks, err = locksOf(f)
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Locks{}, nil
	case err != nil:
		return Locks{}, err
	}
	return locks, nil
}

func locksOf(f *os.File) (Locks, error) {
	writes, err := locked(f, lockMayBase+lockMayWrite, 1)
	if err != nil || writes {
		return Locks{Open: writes, Writes: writes}, err
	}
	open, err := locked(f, lockMayBase, lockOthersBase+lockBytes-lockMayBase)
	return Locks{Open: open}, err
}

func locked(f *os.File, first, bytes int64) (bool, error) {
	// QEMU's locks are shared locks, which conflict only with an exclusive lock.
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: first, Len: bytes}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
	switch {
	case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP): // locks are unsupported
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at the locks of %s: %w", f.Name(), err)
	}
	return lock.Type != unix.F_UNLCK, nil
}
