// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxAlignBytes is the most that the size of a raw file has to be a multiple of, so that QEMU
// writes to it past the page cache.
const MaxAlignBytes = 4096

// DirectAlignBytes returns what the size of a raw file in a directory has to be a multiple of,
// so that QEMU writes to it past the page cache, as it does for cache none and directsync. QEMU
// tries what a read at the beginning of the file has to be a multiple of; hole says that the
// file begins with a hole, which tells it nothing on most filesystems. A file is made in the
// directory, and removed.
func (s Storage) DirectAlignBytes(dir string, hole bool) (alignBytes int64, err error) {
	answered := answered("images in "+dir+" are read past the page cache", func() (err error) {
		alignBytes, err = directAlignBytes(dir, hole)
		return err
	})
	if answered != nil {
		return 0, answered
	}
	return alignBytes, nil
}

func directAlignBytes(dir string, hole bool) (int64, error) {
	f, path, remove, err := trialFile(dir)
	if err != nil {
		return 0, err
	}
	defer remove()
	if err := f.Truncate(2 * MaxAlignBytes); err != nil {
		return 0, err
	}
	if !hole {
		if err := fillFirstBlock(f); err != nil {
			return 0, err
		}
	}
	direct, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		return 1, nil // nor does QEMU get by the page cache
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = direct.Close() }()
	return probeAlign(direct), nil
}

// probeAlign finds out what QEMU does (raw_probe_alignment of block/file-posix.c).
func probeAlign(direct *os.File) int64 {
	// XFS answers, and other filesystems may by the same call.
	var dio struct{ mem, minIO, maxIO uint32 }
	const dioInfo = 0x800c581e // XFS_IOC_DIOINFO
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, direct.Fd(), dioInfo, uintptr(unsafe.Pointer(&dio))); errno == 0 && dio.minIO > 0 {
		return int64(dio.minIO)
	}
	block := alignedBlock()
	for _, align := range []int64{1, 512, 1024, 2048, MaxAlignBytes} {
		_, err := unix.Pread(int(direct.Fd()), block[:align], 0)
		if errors.Is(err, unix.EINVAL) {
			continue
		}
		if align == 1 { // any read will do, which QEMU does not believe
			break
		}
		return align
	}
	return MaxAlignBytes
}

// FillFirstBlock writes zeros to the first block of a raw file where that reads as zeros, so
// that it has space there and does not begin with a hole. It returns when that is on stable
// storage. Nobody may write to the file meanwhile.
func (s Storage) FillFirstBlock(_ context.Context, path string) error {
	f, err := s.Files.Open(path, os.O_RDWR)
	if err != nil {
		return noImage(err)
	}
	return errors.Join(fillFirstBlock(f), f.Close())
}

func fillFirstBlock(f *os.File) error {
	zeros := make([]byte, MaxAlignBytes)
	first := make([]byte, MaxAlignBytes)
	n, err := f.ReadAt(first, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the first block of %s: %w", f.Name(), err)
	}
	if n == 0 || !bytes.Equal(first[:n], zeros[:n]) {
		return nil
	}
	if _, err := f.WriteAt(zeros[:n], 0); err != nil {
		return noSpace(fmt.Errorf("fill the first block of %s: %w", f.Name(), err))
	}
	return f.Sync()
}

// alignedBlock is a block of memory that may be read into, or written from, past the page cache.
func alignedBlock() []byte {
	memory := make([]byte, 2*MaxAlignBytes)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))) & (MaxAlignBytes - 1)
	return memory[skip:][:MaxAlignBytes]
}
