// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The parts of a key of Ceph's: a type, when it was made, and how many bytes follow.
const (
	keyLengthAt   = 10
	keyHeaderSize = 12
)

// errNoKey does not show what is no key: it may be one in another form.
var errNoKey = errors.New("the secret of libvirt's has no key of Ceph's: set it from the file of the key (virsh secret-set-value --file, whose text is the key in base64)")

// isKey says whether these bytes are a key as Ceph has them. Its libraries show what they cannot decode.
func isKey(key []byte) bool {
	return len(key) > keyHeaderSize && int(binary.LittleEndian.Uint16(key[keyLengthAt:])) == len(key)-keyHeaderSize
}

// keyFile is a file in memory, without a name, that has a key as Ceph writes keys. It is all that a
// program gets of the key: no argument, no environment, no file that anybody else could open.
func keyFile(key []byte) (*os.File, error) {
	if !isKey(key) {
		return nil, errNoKey
	}
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
