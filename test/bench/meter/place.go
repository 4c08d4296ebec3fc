// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// place is where a file system has its bytes.
type place struct {
	fsType string
	device string // the number of the block device, as 254:0; "" if it is on none
}

// placeOf finds the place of the file system that a directory is in.
func placeOf(dir string) (p place, err error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID, &st); err != nil {
		return p, fmt.Errorf("find disk of %s: %w", dir, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return p, fmt.Errorf("find disk of %s: %w", dir, err)
	}
	source, fsType := mounted(string(mounts), st.Mnt_id)
	p.fsType = fsType
	if st.Dev_major != 0 {
		p.device = fmt.Sprintf("%d:%d", st.Dev_major, st.Dev_minor)
		return p, nil
	}
	// The number of a directory of btrfs is no device's: the file system is mounted from one of its
	// disks.
	var from unix.Stat_t
	if unix.Stat(source, &from) == nil && from.Mode&unix.S_IFMT == unix.S_IFBLK {
		p.device = fmt.Sprintf("%d:%d", unix.Major(from.Rdev), unix.Minor(from.Rdev))
	}
	return p, nil
}

// mounted looks a mount up in /proc/self/mountinfo: what is mounted, and the type of the file
// system.
func mounted(mountinfo string, id uint64) (source, fsType string) {
	for line := range strings.Lines(mountinfo) {
		// id parent major:minor root directory options [tags] - type source options
		if number, rest, _ := strings.Cut(line, " "); number == strconv.FormatUint(id, 10) {
			_, rest, _ = strings.Cut(rest, " - ")
			if fields := strings.Fields(rest); len(fields) >= 2 {
				return fields[1], fields[0]
			}
		}
	}
	return "", ""
}
