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

// Locks is what the locks say that QEMU takes of each file that it opens. A filesystem that others
// have too carries them: NFS 4 does, unless it is mounted with local locks.
type Locks struct {
	// Open: QEMU has the file open, on this host or on another.
	Open bool
	// Writes: it may write there.
	Writes bool
}

// QEMU locks one byte of a file for each thing that it may do there, from the first of these on,
// and one for each thing that nobody else may (block/file-posix.c). Each has room for 64 of them.
// libvirt has bytes of its own before.
const (
	lockMayBase    = 100
	lockOthersBase = 200
	lockBytes      = 64
	// lockMayWrite is the number of BLK_PERM_WRITE, a bit, among them.
	lockMayWrite = 1
)

// Locks reads the locks of a file, and takes none. Of a device, and on a filesystem without locks,
// it says that nobody has it: QEMU's locks of a device are known by its node alone, and each guest
// has nodes of its own.
func (s Storage) Locks(_ context.Context, path string) (Locks, error) {
	if api.IsNetwork(path) {
		return Locks{}, nil
	}
	var locks Locks
	err := answered("QEMU has "+path+" open", func() (err error) {
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() {
			return err
		}
		f, err := s.Files.Open(path, os.O_RDONLY)
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

// locked reports whether somebody has a lock of one of these bytes.
func locked(f *os.File, first, bytes int64) (bool, error) {
	// QEMU's locks are shared ones, and so stand in the way of an exclusive one alone.
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: first, Len: bytes}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
	switch {
	case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP): // there are no locks here
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at the locks of %s: %w", f.Name(), err)
	}
	return lock.Type != unix.F_UNLCK, nil
}
