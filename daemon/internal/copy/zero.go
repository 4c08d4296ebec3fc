// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ways to make a range read as zeros, from the one that gives most space
// back to the one that always works. An end starts with the first and moves on
// for good when one is not supported.
const (
	// zeroPunch deallocates. On a block device the kernel does it only where the
	// device promises that unmapped blocks read as zeros.
	zeroPunch int32 = iota
	// zeroRange keeps the space: an unwritten extent of a file, WRITE ZEROES of a
	// device, which the kernel replaces by writing zeros if it must.
	zeroRange
	// zeroWrite writes zeros.
	zeroWrite
)

// zeroBlock is what zeros are compared with and written from.
var zeroBlock = newBuffer(chunkBytes)

// isZero says whether p, at most a chunk, is all zeros.
func isZero(p []byte) bool { return bytes.Equal(p, zeroBlock[:len(p)]) }

// Zero takes the best way that the file or device supports.
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

// zeroDevice is the BLKZEROOUT request.
func zeroDevice(fd int, off, n int64) error {
	const blkZeroOut = 0x127f // _IO(0x12, 127) of linux/fs.h
	span := [2]uint64{uint64(off), uint64(n)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), blkZeroOut, uintptr(unsafe.Pointer(&span))); errno != 0 {
		return fmt.Errorf("zero device: %w", errno)
	}
	return nil
}

// unsupported says that the kernel has no such operation for this file.
func unsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.ENODEV)
}
