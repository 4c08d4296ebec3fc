// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ways to make a range read as zeros. Each frees less space than the way before it; the last
// always works. After an unsupported way an End only uses later ones.
const (
	// zeroPunch deallocates. On a block device the kernel does it only if the device promises that
	// unmapped blocks read as zeros.
	zeroPunch int32 = iota
	// zeroDiscard deallocates the blocks of a thin volume, which zeroPunch does not, and writes
	// zeros to partial blocks.
	zeroDiscard
	// zeroRange keeps the space: an unwritten extent of a file, or WRITE ZEROES of a device. If it
	// must, the kernel writes zeros instead.
	zeroRange
	zeroWrite
)

var zeroBlock = newBuffer(chunkBytes)

func isZero(p []byte) bool { return bytes.Equal(p, zeroBlock[:len(p)]) }

func (f *fileEnd) Zero(off, n int64) error {
	for {
		way := f.zeroing.Load()
		err := f.zeroBy(way, off, n)
		if err == nil || way == zeroWrite || !unsupported(err) {
			return err
		}
		f.zeroing.CompareAndSwap(way, way+1)
	}
}

func (f *fileEnd) zeroBy(way int32, off, n int64) error {
	fd := int(f.buffered.Fd())
	switch {
	case way == zeroPunch:
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	case way == zeroDiscard:
		return f.discard(off, n)
	case way == zeroRange && f.regular:
		return unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	case way == zeroRange:
		return zeroDevice(fd, off, n)
	}
	for end := off + n; off < end; {
		m, err := f.WriteAt(zeroBlock[:min(end-off, int64(len(zeroBlock)))], off)
		if err != nil {
			return err
		}
		off += int64(m)
	}
	return nil
}

// discard zeroes a range by zeroDiscard. It returns ErrUnsupported if dst is no thin volume, or
// its discarded blocks do not read as zeros.
func (f *fileEnd) discard(off, n int64) error {
	block := f.thinBlockBytes.Load()
	if block <= 0 {
		return errors.ErrUnsupported
	}
	fd := int(f.buffered.Fd())
	first, end := (off+block-1)/block*block, (off+n)/block*block
	if first >= end {
		return zeroDevice(fd, off, n)
	}
	if err := requestRange(fd, unix.BLKDISCARD, first, end-first); err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	if zero, err := f.readsZero(first, end); err != nil || !zero {
		return errors.Join(err, errors.ErrUnsupported)
	}
	if err := zeroDevice(fd, off, first-off); err != nil {
		return err
	}
	return zeroDevice(fd, end, off+n-end)
}

func (f *fileEnd) readsZero(off, end int64) (bool, error) {
	buf := newBuffer(chunkBytes)
	for ; off < end; off += chunkBytes {
		p := buf[:min(chunkBytes, end-off)]
		if _, err := f.ReadAt(p, off); err != nil || !isZero(p) {
			return false, err
		}
	}
	return true, nil
}

func zeroDevice(fd int, off, n int64) error {
	if n == 0 {
		return nil
	}
	if err := requestRange(fd, unix.BLKZEROOUT, off, n); err != nil {
		return fmt.Errorf("zero device: %w", err)
	}
	return nil
}

func requestRange(fd int, request uintptr, off, n int64) error {
	span := [2]uint64{uint64(off), uint64(n)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&span))); errno != 0 {
		return errno
	}
	return nil
}

func unsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.ENODEV)
}
