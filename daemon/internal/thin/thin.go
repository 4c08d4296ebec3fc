// SPDX-License-Identifier: Apache-2.0

// Package thin queries the kernel's device mapper about thin volumes, including LVM's.
//
// A thin volume has no space where it is unwritten. Written zeros take space, and the kernel's
// "write zeros" operations only write zeros there. A discarded block takes no space and reads as
// zeros. That holds for whole blocks of the pool, and it lasts only if the pool clears a block
// before the first write to a part of it
// (Documentation/admin-guide/device-mapper/thin-provisioning.rst: skip_block_zeroing).
package thin

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const sectorBytes = 512

// BlockBytes returns the size of a thin volume's blocks if every part of a discarded block reads
// as zeros until that part is written. It returns 0 if the device is no thin volume, or its pool
// does not promise that. control is the device Control, open for writing. It needs CAP_SYS_ADMIN.
func BlockBytes(control *os.File, device uint64) (int64, error) {
	kind, params, err := query(control, device, unix.DM_STATUS_TABLE_FLAG)
	if err != nil || kind != "thin" {
		return 0, err
	}
	pool, ok := poolOf(params)
	if !ok {
		return 0, nil
	}
	kind, params, err = query(control, pool, unix.DM_STATUS_TABLE_FLAG)
	if err != nil || kind != "thin-pool" {
		return 0, err
	}
	return blockBytes(params)
}

// poolOf parses the table of a thin volume: "MAJOR:MINOR ID [ORIGIN]". With an external origin ok
// is false, because unwritten blocks then read as the origin, not as zeros.
func poolOf(params string) (device uint64, ok bool) {
	words := strings.Fields(params)
	if len(words) != 2 {
		return 0, false
	}
	return parseDevice(words[0])
}

func parseDevice(text string) (device uint64, ok bool) {
	majorText, minorText, _ := strings.Cut(text, ":")
	major, err1 := strconv.ParseUint(majorText, 10, 32)
	minor, err2 := strconv.ParseUint(minorText, 10, 32)
	return unix.Mkdev(uint32(major), uint32(minor)), err1 == nil && err2 == nil
}

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
