// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// keyFile is a file in memory, without a name, that has a key as Ceph writes keys. It is all that a
// program gets of the key: no argument, no environment, no file that anybody else could open.
func keyFile(key []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("cephx", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file for a key: %w", err)
	}
	f := os.NewFile(uintptr(fd), "cephx")
	if _, err := f.WriteString(base64.StdEncoding.EncodeToString(key)); err != nil {
		return nil, errors.Join(fmt.Errorf("write a key: %w", err), f.Close())
	}
	return f, nil
}
