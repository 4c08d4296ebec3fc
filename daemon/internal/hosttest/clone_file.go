// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"encoding/binary"
	"os"
)

// WriteClone writes a real file with the header of a qcow2 image over backing.
func WriteClone(path, backing string) error {
	const (
		magic         = 0x514649fb
		backingOffset = 112
		clusterBits   = 16
	)
	b := make([]byte, 1<<clusterBits)
	be := binary.BigEndian
	be.PutUint32(b, magic)
	be.PutUint32(b[4:], 3)
	be.PutUint64(b[8:], backingOffset)
	be.PutUint32(b[16:], uint32(len(backing)))
	be.PutUint32(b[20:], clusterBits)
	copy(b[backingOffset:], backing)
	return os.WriteFile(path, b, 0o600)
}
