// SPDX-License-Identifier: Apache-2.0

package thin

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control is the control device of the device mapper.
const Control = "/dev/mapper/control"

var controlDevice = unix.Mkdev(10, 236)

// answerRoom is the size in bytes of the buffer for the kernel's answer: the table and the status
// of one target need less.
const answerRoom = 4 << 10

// query returns the kind of a device's only target, and its status or, if flags request that, its
// table. It returns empty texts if the device has several targets, or is no device-mapper device.
func query(control *os.File, device uint64, flags uint32) (kind, params string, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(control.Fd()), &st); err != nil {
		return "", "", fmt.Errorf("inspect %s: %w", control.Name(), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != controlDevice {
		return "", "", fmt.Errorf("%s is not the control of the device mapper", control.Name())
	}
	// The kernel requires the header before the buffer for its answer (linux/dm-ioctl.h).
	var q struct {
		unix.DmIoctl
		room [answerRoom]byte
	}
	q.Version = [3]uint32{4, 0, 0}
	q.Data_size = uint32(unsafe.Sizeof(q))
	q.Data_start = uint32(unsafe.Offsetof(q.room))
	q.Flags = flags
	q.Dev = encode(device)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), unix.DM_TABLE_STATUS, uintptr(unsafe.Pointer(&q)))
	switch {
	case errors.Is(errno, unix.ENXIO):
		return "", "", nil
	case errno != 0:
		return "", "", fmt.Errorf("ask about device %d:%d: %w", unix.Major(device), unix.Minor(device), errno)
	case q.Target_count != 1 || q.Flags&unix.DM_BUFFER_FULL_FLAG != 0:
		return "", "", nil
	}
	// The answer may begin later than requested.
	answer := unsafe.Slice((*byte)(unsafe.Pointer(&q)), unsafe.Sizeof(q))
	if int64(q.Data_start)+unix.SizeofDmTargetSpec > int64(len(answer)) {
		return "", "", errors.New("the device mapper's answer begins behind its end")
	}
	answer = answer[q.Data_start:]
	target := (*unix.DmTargetSpec)(unsafe.Pointer(unsafe.SliceData(answer)))
	return text(target.Target_type[:]), text(answer[unix.SizeofDmTargetSpec:]), nil
}

func encode(device uint64) uint64 {
	major, minor := uint64(unix.Major(device)), uint64(unix.Minor(device))
	return minor&0xff | major<<8 | (minor&^0xff)<<12
}

func text(b []byte) string {
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before)
}
