// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// extent is a part of a file, as FS_IOC_FIEMAP has it.
type extent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

// extentMap is what FS_IOC_FIEMAP is asked with, and answers.
type extentMap struct {
	start, length        uint64
	flags, mapped, count uint32
	_                    uint32
	extents              [256]extent
}

// sharedBytes are those of a file's data whose place on the disk another file has, too, and all of
// them.
func sharedBytes(path string) (shared, all uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, fmt.Errorf("find shared extents: %w", err)
	}
	defer func() { _ = f.Close() }()
	const (
		fiemap       = 0xc020660b // FS_IOC_FIEMAP
		sync         = 1          // FIEMAP_FLAG_SYNC
		last         = 1          // FIEMAP_EXTENT_LAST
		sharedExtent = 0x2000     // FIEMAP_EXTENT_SHARED
	)
	for start := uint64(0); ; {
		m := extentMap{start: start, length: ^uint64(0) - start, flags: sync}
		m.count = uint32(len(m.extents))
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemap, uintptr(unsafe.Pointer(&m))); errno != 0 {
			return 0, 0, fmt.Errorf("find shared extents of %s: %w", path, errno)
		}
		for _, e := range m.extents[:m.mapped] {
			all += e.length
			if e.flags&sharedExtent != 0 {
				shared += e.length
			}
			if e.flags&last != 0 {
				return shared, all, nil
			}
			start = e.logical + e.length
		}
		if m.mapped == 0 {
			return shared, all, nil
		}
	}
}

// writtenIn is how much a guest wrote in a span.
func writtenIn(h *lab.History, s span) (bytes uint64) {
	for _, a := range h.Acks {
		if s.has(a.HostTime) {
			bytes += a.Op.Count * workload.BlockSize
		}
	}
	return bytes
}

// errNoClone says that a move has copied.
var errNoClone = errors.New("it was no clone")

// wantClone refuses a move after which the destination does not have the places on the disk that
// the source has. What the guest wrote meanwhile, if there is one, has places of its own.
func wantClone(src string, written uint64) error {
	shared, all, err := sharedBytes(src)
	if err != nil {
		return err
	}
	if shared+written < all/2 {
		return fmt.Errorf("%w: of %d bytes of the source %d are shared", errNoClone, all, shared)
	}
	return nil
}
