// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

type attributes struct {
	noCOW       bool   // written in place (btrfs)
	extentBytes uint32 // extent size hint (XFS), 0 for none
	project     uint32 // project of its quota, 0 for none
}

// The ioctl requests for attributes, and the bits of their values (linux/fs.h).
const (
	getFlags  = 0x80086601 // FS_IOC_GETFLAGS
	setFlags  = 0x40086602 // FS_IOC_SETFLAGS
	noCOWFlag = 0x00800000 // FS_NOCOW_FL
	getXattr  = 0x801c581f // FS_IOC_FSGETXATTR
	setXattr  = 0x401c5820 // FS_IOC_FSSETXATTR
	extentBit = 0x00000800 // FS_XFLAG_EXTSIZE
)

type fsxattr struct {
	flags, extentBytes, extents, project, cowExtentBytes uint32
	_                                                    [8]byte
}

func (x *fsxattr) request(f *os.File, number uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), number, uintptr(unsafe.Pointer(x))); errno != 0 {
		return errno
	}
	return nil
}

func attributesOf(f *os.File) (a attributes) {
	if flags, err := unix.IoctlGetInt(int(f.Fd()), getFlags); err == nil {
		a.noCOW = flags&noCOWFlag != 0
	}
	var x fsxattr
	if err := x.request(f, getXattr); err == nil {
		a.project = x.project
		if x.flags&extentBit != 0 {
			a.extentBytes = x.extentBytes
		}
	}
	return a
}

// give sets these attributes of an empty file as far as possible, and describes the missing ones.
// A file keeps a project that it got from its directory.
func (a attributes) give(f *os.File) (left []string) {
	has := attributesOf(f)
	if a.noCOW && !has.noCOW {
		if flags, err := unix.IoctlGetInt(int(f.Fd()), getFlags); err == nil {
			_ = unix.IoctlSetPointerInt(int(f.Fd()), setFlags, flags|noCOWFlag)
		}
	}
	if a.extentBytes != has.extentBytes || a.project != has.project {
		a.giveXattr(f, has)
	}
	has = attributesOf(f)
	if a.noCOW && !has.noCOW {
		left = append(left, "that it is written in place (NOCOW)")
	}
	if a.extentBytes != 0 && a.extentBytes != has.extentBytes {
		left = append(left, fmt.Sprintf("its extent size hint (%d bytes)", a.extentBytes))
	}
	if a.project != 0 && a.project != has.project {
		left = append(left, fmt.Sprintf("its project (%d)", a.project))
	}
	return left
}

// giveXattr changes extent size hint and project separately: a filesystem without projects may
// support the hint.
func (a attributes) giveXattr(f *os.File, has attributes) {
	var x fsxattr
	if a.extentBytes != 0 && x.request(f, getXattr) == nil {
		x.flags, x.extentBytes = x.flags|extentBit, a.extentBytes
		_ = x.request(f, setXattr) // give checks the result
	}
	if a.project != 0 && has.project == 0 && x.request(f, getXattr) == nil {
		x.project = a.project
		_ = x.request(f, setXattr)
	}
}

func (h host) attributes(path string) attributes {
	if path == "" {
		return attributes{}
	}
	f, err := h.Open(path, os.O_RDONLY)
	if err != nil {
		return attributes{}
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return attributes{}
	}
	return attributesOf(f)
}

func (h host) storeLike(path string, has attributes) (left []string, err error) {
	f, err := h.Open(path, os.O_RDWR)
	if err != nil {
		return nil, noImage(err)
	}
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	empty := st.Mode&unix.S_IFMT == unix.S_IFREG && st.Blocks == 0
	if empty { // btrfs checks the size, not the content
		if err := f.Truncate(0); err != nil {
			return nil, err
		}
	}
	left = has.give(f)
	if empty {
		err = f.Truncate(st.Size)
	}
	return left, noSpace(errors.Join(err, f.Sync()))
}
