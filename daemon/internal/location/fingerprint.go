// SPDX-License-Identifier: Apache-2.0

package location

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Fingerprint tells the image at a path, links followed, from another one that comes
// to be there later, also after a reboot: of a file its inode and when that was made,
// of a device what it says of itself (WWID, UUID of a map, serial, the file of a loop
// device, the disk of a partition), or its number if it says nothing. The error wraps
// unix.ENOENT if there is nothing.
func Fingerprint(path string) (string, error) {
	if _, err := Stat(path); err != nil { // which has a bound
		return "", err
	}
	return fingerprint(unix.AT_FDCWD, path, 0)
}

// FingerprintOf is Fingerprint of an open file.
func FingerprintOf(f *os.File) (string, error) {
	return fingerprint(int(f.Fd()), "", unix.AT_EMPTY_PATH)
}

func fingerprint(dir int, path string, flags int) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(dir, path, flags|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", &os.PathError{Op: "statx", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return device(st.Rdev_major, st.Rdev_minor), nil
	}
	if st.Mask&unix.STATX_BTIME == 0 {
		return fmt.Sprintf("inode %d", st.Ino), nil
	}
	return fmt.Sprintf("inode %d of %d.%09d", st.Ino, st.Btime.Sec, st.Btime.Nsec), nil
}
