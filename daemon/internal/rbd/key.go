// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"os"

	"github.com/volferry/volferry/daemon/internal/storagedaemon"
)

// The positions of the parts of a Ceph key: type, creation time, number of following bytes.
const (
	keyLengthAt   = 10
	keyHeaderSize = 12
)

// errNoKey does not show the secret's value, which may be a key in another form.
var errNoKey = errors.New("the secret of libvirt's has no key of Ceph's: set it from the file of the key (virsh secret-set-value --file, whose text is the key in base64)")

// isKey reports whether these bytes are a decoded Ceph key. Ceph's libraries would print a value
// that they cannot decode.
func isKey(key []byte) bool {
	return len(key) > keyHeaderSize && int(binary.LittleEndian.Uint16(key[keyLengthAt:])) == len(key)-keyHeaderSize
}

func keyFile(key []byte) (*os.File, error) {
	if !isKey(key) {
		return nil, errNoKey
	}
	return storagedaemon.SecretFile([]byte(base64.StdEncoding.EncodeToString(key)))
}
