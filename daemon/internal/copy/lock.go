// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
)

// The bytes of an image that are locked, as nobody else's data: locks know
// nothing of the file's size.
const (
	// copyLockOffset is where two copies meet.
	copyLockOffset = 1 << 62
	// QEMU locks single bytes from 100 and from 200 on for what it does with an
	// image and what it lets others do. To hold them all is to keep every guest
	// and every tool of QEMU away.
	qemuLockOffset = 100
	qemuLockBytes  = 200
)

// lockDst keeps all others from writing to dst: other copies, and guests, unless QEMU serves dst,
// which takes its own locks against them; a block device is claimed exclusively, which mounts and
// volume managers respect. ErrInUse if somebody was first. The locks go with the returned file,
// whatever kills us. What is at an address has no locks: the file is nil.
func (s *Spec) lockDst() (*os.File, error) { return s.lockDstAs(unix.F_WRLCK) }

// lockDstAs is lockDst with a kind of lock: copies with F_RDLCK share dst with each other,
// and with nobody else.
func (s *Spec) lockDstAs(kind int16) (*os.File, error) {
	path := s.Dst.Path
	if api.IsNetwork(path) {
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

// stillNamed makes sure that the image that was written is the one that its path names:
// what was unlinked, or replaced, during the copy is gone when the last descriptor is.
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

// lockBytes takes a lock of the open file, not of the process, so that copies
// in one process exclude each other as well.
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
