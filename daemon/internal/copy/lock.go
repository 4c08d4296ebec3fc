// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/medium"
)

// The locked bytes of an image need not exist: locks ignore the file's size.
const (
	// copyLockOffset is a byte that copies lock to exclude each other.
	copyLockOffset = 1 << 62
	// QEMU locks single bytes from 100 on for its own use of an image, and from 200 on for the
	// uses that it denies to others. All of them exclude every guest and every QEMU tool.
	qemuLockOffset = 100
	qemuLockBytes  = 200
)

// lockDst excludes other copies and guests from writing to dst. If QEMU serves dst, QEMU takes its
// own locks against guests. A block device is opened exclusively, which mounts and volume managers
// respect. The locks end with the returned file, even after a crash. It returns ErrInUse if
// another program has dst, and a nil file for a network image, which has no locks.
func (s *Spec) lockDst() (*os.File, error) { return s.lockDstAs(unix.F_WRLCK) }

// lockDstAs is lockDst with a kind of lock: copies with F_RDLCK share dst with each other only.
func (s *Spec) lockDstAs(kind int16) (*os.File, error) {
	path := s.Dst.Path
	if !medium.Of(path).Witnessed {
		return nil, nil
	}
	found, err := s.Files.Find(path, 0)
	if err != nil {
		return nil, imageError(err)
	}
	defer found.Close()
	flags := os.O_RDWR
	if found.Block {
		flags |= os.O_EXCL
	}
	f, err := found.Open(flags)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, path)
	}
	if err != nil {
		return nil, err
	}
	if s.IsDst != nil {
		err = s.IsDst(f)
	}
	if err == nil {
		err = lockBytes(f, kind, copyLockOffset, 1)
	}
	if err == nil && s.Dst.Format == qemuimg.FormatRaw {
		err = lockBytes(f, kind, qemuLockOffset, qemuLockBytes)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// stillNamed checks that the path still names the written image. An unlinked or replaced image
// disappears when its last descriptor is closed.
func stillNamed(f *os.File) error {
	if f == nil {
		return nil
	}
	written, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(f.Name())
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(written, named) {
		return &ImageError{Path: f.Name(), Reason: "removed, or replaced by another, while it was written"}
	}
	return err
}

// lockBytes locks per open file, so that copies in one process exclude each other too.
func lockBytes(f *os.File, kind int16, off, n int64) error {
	lock := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: off, Len: n}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: %s", ErrInUse, f.Name())
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}
