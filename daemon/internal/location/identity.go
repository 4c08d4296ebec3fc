// SPDX-License-Identifier: Apache-2.0

package location

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Identity distinguishes images independently of their paths, until the host reboots: the
// filesystem and inode of a file, or the number of a block device.
type Identity struct {
	Block bool
	Dev   uint64
	Inode uint64
}

// Identify returns the identity of the file or device at a path, through links. The error wraps
// unix.ENOENT if there is nothing, and ErrNoAnswer if the filesystem does not answer.
func Identify(path string) (Identity, error) {
	st, err := Stat(path)
	if err != nil {
		return Identity{}, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return Identity{Block: true, Dev: st.Rdev}, nil
	}
	return Identity{Dev: st.Dev, Inode: st.Ino}, nil
}

func isAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

func ignoreAbsent(err error) error {
	if isAbsent(err) {
		return nil
	}
	return err
}
