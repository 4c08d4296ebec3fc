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

// MaxAlignBytes is the largest alignment of a raw file's size that QEMU needs for writes past the
// page cache.
const MaxAlignBytes = 4096

// DirectAlignBytes returns the alignment of a raw file's size that QEMU needs in a directory to
// write past the page cache (cache none and directsync). QEMU finds the alignment by reads at the
// beginning of the file. hole is true for a file that begins with a hole, where these reads find
// nothing on most filesystems.
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
		return 1, nil // QEMU cannot bypass the page cache either
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = direct.Close() }()
	return probeAlign(direct), nil
}

// probeAlign repeats QEMU's probe (raw_probe_alignment of block/file-posix.c).
func probeAlign(direct *os.File) int64 {
	// XFS supports XFS_IOC_DIOINFO, and other filesystems may.
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
		if align == 1 { // every read works, which QEMU does not trust
			break
		}
		return align
	}
	return MaxAlignBytes
}

// FillFirstBlock durably allocates the first block of a raw file: it writes zeros if the block
// reads as zeros. The file must have no other writer meanwhile.
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

func alignedBlock() []byte {
	memory := make([]byte, 2*MaxAlignBytes)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))) & (MaxAlignBytes - 1)
	return memory[skip:][:MaxAlignBytes]
}
