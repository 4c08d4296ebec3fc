// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"fmt"
	"hash/fnv"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// HeaderBytes is how much of a LUKS container is its header; what the guest sees is behind it.
const HeaderBytes = BlockSize

// luksHeader is what a container has in its first block: which secret opens it.
func luksHeader(secret string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(secret)) // which cannot fail
	return h.Sum64()
}

// Encrypt makes a raw image, with what is in it, a LUKS container that a secret opens. It becomes larger by
// its header.
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
	img.written++
	return nil
}

// isContainer says whether QEMU opens an image as a LUKS container.
func isContainer(img hv.Image) bool { return img.Format == Raw && img.LUKSSecret != "" }

// headerBlocks is how many blocks of an image's file are before what the guest sees.
func headerBlocks(img hv.Image) int64 {
	if isContainer(img) {
		return HeaderBytes / BlockSize
	}
	return 0
}

// decrypt refuses what QEMU does not open: an image with another key, or none, and one that is not
// encrypted at all.
func (file *image) decrypt(img hv.Image) error {
	switch {
	case isContainer(img):
		if file.blocks[0] != luksHeader(img.LUKSSecret) {
			return fmt.Errorf("open %s: it has no LUKS header that secret %s opens", img.Path, img.LUKSSecret)
		}
	case file.secret != img.LUKSSecret:
		return fmt.Errorf("open %s: it is encrypted with secret %q, not %q", img.Path, file.secret, img.LUKSSecret)
	}
	return nil
}

// guestBlocks is what a guest sees of an image's own blocks.
func (file *image) guestBlocks(img hv.Image) map[int64]uint64 {
	header := headerBlocks(img)
	blocks := make(map[int64]uint64, len(file.blocks))
	for block, value := range file.blocks {
		if block >= header {
			blocks[block-header] = value
		}
	}
	return blocks
}

// checkClear finds out who would have a guest write in the clear what its volume encrypts: into an
// overlay, or into the destination of a job.
func (m *Images) checkClear(below, to hv.Image) {
	if below.LUKSSecret != "" && to.LUKSSecret != below.LUKSSecret {
		m.violate("%s gets in the clear, or by another secret, what %s encrypts", to.Path, below.Path)
	}
}
