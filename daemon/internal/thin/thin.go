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
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const sectorBytes = 512

// BlockBytes returns the size of the blocks of a thin volume that read as zeros once they are
// discarded, whatever is written to other blocks or to a part of them later. 0: the device is no
// thin volume, or its pool promises no such thing. Control is Control, open for writing; it
// takes CAP_SYS_ADMIN.
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

// poolOf reads the table of a thin volume: "MAJOR:MINOR ID [ORIGIN]". What it has not written
// itself reads as its origin where it has one from outside, and not as zeros: not ok.
func poolOf(params string) (device uint64, ok bool) {
	words := strings.Fields(params)
	if len(words) != 2 {
		return 0, false
	}
	return parseDevice(words[0])
}

// parseDevice reads "MAJOR:MINOR".
func parseDevice(text string) (device uint64, ok bool) {
	majorText, minorText, _ := strings.Cut(text, ":")
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
