// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"github.com/volferry/volferry/daemon/internal/hv"
)

// Encrypt turns a raw image with its content into a LUKS container for a secret. The container's
// header makes the image larger.
func (m *Images) Encrypt(path, secret string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.openForWrite(path)
	if err != nil {
		return err
	}
	container := map[int64]uint64{0: luksHeader(secret)}
	for block, value := range img.blocks {
		container[block+1] = value
	}
	img.blocks, img.size = container, img.size+HeaderBytes
	img.modified()
	return nil
}

// checkClear detects a caller that would store an encrypted volume's data in the clear: in an
// overlay, or in the destination of a job.
func (m *Images) checkClear(below, to hv.Image) {
	if below.LUKSSecret != "" && to.LUKSSecret != below.LUKSSecret {
		m.violate("%s gets in the clear, or by another secret, what %s encrypts", to.Path, below.Path)
	}
}
