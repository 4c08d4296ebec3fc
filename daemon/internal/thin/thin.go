// SPDX-License-Identifier: Apache-2.0

// Package thin asks the kernel's device mapper about thin volumes, those of LVM among them.
//
// A thin volume has no space where nobody has written. Zeros that are written take space, and
// the kernel offers nothing else there that is called "write zeros"; a discarded block has no
// space and reads as zeros. That is so for whole blocks of the pool, and it stays so only where
// the pool clears a block before the first write to a part of it
// (Documentation/admin-guide/device-mapper/thin-provisioning.rst: skip_block_zeroing).
package thin

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control is the device by which the device mapper is asked.
const Control = "/dev/mapper/control"

// controlDevice is its number (MAPPER_CTRL_MINOR of linux/miscdevice.h).
var controlDevice = unix.Mkdev(10, 236)

const sectorBytes = 512

// BlockBytes returns the size of the blocks of a thin volume that read as zeros once they are
// discarded, whatever is written to other blocks or to a part of them later. 0: the device is no
// thin volume, or its pool promises no such thing. Control is Control, open for writing; it
// takes CAP_SYS_ADMIN.
func BlockBytes(control *os.File, device uint64) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(control.Fd()), &st); err != nil {
		return 0, fmt.Errorf("inspect %s: %w", control.Name(), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != controlDevice {
		return 0, fmt.Errorf("%s is not the control of the device mapper", control.Name())
	}
	kind, params, err := table(control, device)
	if err != nil || kind != "thin" {
		return 0, err
	}
	pool, ok := poolOf(params)
	if !ok {
		return 0, nil
	}
	kind, params, err = table(control, pool)
	if err != nil || kind != "thin-pool" {
		return 0, err
	}
	return blockBytes(params)
}

// poolOf reads the table of a thin volume: "MAJOR:MINOR ID [ORIGIN]". What it has not written
// itself reads as its origin where it has one from outside, and not as zeros: not ok.
func poolOf(params string) (device uint64, ok bool) {
	words := strings.Fields(params)
	if len(words) != 2 {
		return 0, false
	}
	majorText, minorText, _ := strings.Cut(words[0], ":")
	major, err1 := strconv.ParseUint(majorText, 10, 32)
	minor, err2 := strconv.ParseUint(minorText, 10, 32)
	return unix.Mkdev(uint32(major), uint32(minor)), err1 == nil && err2 == nil
}

// blockBytes reads the table of a pool: "METADATA DATA BLOCK_SECTORS LOW_WATER N FEATURE...".
func blockBytes(params string) (int64, error) {
	words := strings.Fields(params)
	if len(words) < 3 {
		return 0, fmt.Errorf("the table of a thin pool has no block size: %q", params)
	}
	sectors, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the table of a thin pool has no block size: %q", params)
	}
	if slices.Contains(words, "skip_block_zeroing") || slices.Contains(words, "ignore_discard") {
		return 0, nil
	}
	return sectors * sectorBytes, nil
}

// tableRoom is more than the table of one target takes.
const tableRoom = 4 << 10

// table returns kind and parameters of a device's only target, and nothing if the device has
// several, or is none of the device mapper's.
func table(control *os.File, device uint64) (kind, params string, err error) {
	// The kernel wants the header in front of the room for its answer (linux/dm-ioctl.h).
	var q struct {
		unix.DmIoctl
		room [tableRoom]byte
	}
	q.Version = [3]uint32{4, 0, 0}
	q.Data_size = uint32(unsafe.Sizeof(q))
	q.Data_start = uint32(unsafe.Offsetof(q.room))
	q.Flags = unix.DM_STATUS_TABLE_FLAG
	q.Dev = encode(device)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), unix.DM_TABLE_STATUS, uintptr(unsafe.Pointer(&q)))
	switch {
	case errors.Is(errno, unix.ENXIO):
		return "", "", nil
	case errno != 0:
		return "", "", fmt.Errorf("ask for the table of device %d:%d: %w", unix.Major(device), unix.Minor(device), errno)
	case q.Target_count != 1 || q.Flags&unix.DM_BUFFER_FULL_FLAG != 0:
		return "", "", nil
	}
	// The answer may begin later than was asked for.
	answer := unsafe.Slice((*byte)(unsafe.Pointer(&q)), unsafe.Sizeof(q))
	if int64(q.Data_start)+unix.SizeofDmTargetSpec > int64(len(answer)) {
		return "", "", errors.New("the device mapper's answer begins behind its end")
	}
	answer = answer[q.Data_start:]
	target := (*unix.DmTargetSpec)(unsafe.Pointer(unsafe.SliceData(answer)))
	return text(target.Target_type[:]), text(answer[unix.SizeofDmTargetSpec:]), nil
}

// encode is a device's number as the device mapper has it (huge_encode_dev of the kernel).
func encode(device uint64) uint64 {
	major, minor := uint64(unix.Major(device)), uint64(unix.Minor(device))
	return minor&0xff | major<<8 | (minor&^0xff)<<12
}

// text is what stands before the first zero.
func text(b []byte) string {
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before)
}
