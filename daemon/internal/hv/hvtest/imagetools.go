// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Copy gives dst the content of src, through the backing images in src's headers. No process may
// write to src or have dst open.
func (m *Images) Copy(src, dst string) error {
	return m.CopyImage(hv.Image{Path: src}, hv.Image{Path: dst})
}

// CopyImage is Copy for images that may be the beginning of larger ones. LUKS containers are
// copied encrypted. If dst has src's backing image, it gets only src's own blocks.
func (m *Images) CopyImage(from, into hv.Image) error {
	from.LUKSSecret, into.LUKSSecret = "", ""
	src, dst := from.Path, into.Path
	m.mu.Lock()
	defer m.mu.Unlock()
	chain, err := m.headerChain(src)
	if err != nil {
		return err
	}
	for _, layer := range chain {
		if _, writers := m.holders(layer.Path); writers > 0 && isLocked(layer.Path) {
			return &fs.PathError{Op: "open for reading", Path: layer.Path, Err: ErrLocked}
		}
	}
	to, err := m.openForWrite(dst)
	if err != nil {
		return err
	}
	size := sizeOf(from, m.files[src])
	if size != sizeOf(into, to) || size > to.size {
		return fmt.Errorf("copy %s to %s: sizes differ: %d and %d", src, dst, size, sizeOf(into, to))
	}
	if to.full {
		return &fs.PathError{Op: "write", Path: dst, Err: errNoSpace}
	}
	if to.backing.Path != "" {
		if to.backing != m.files[src].backing {
			return fmt.Errorf("copy %s to %s: it is over %v, not over %v", src, dst, to.backing, m.files[src].backing)
		}
		chain = chain[:1]
	}
	content, err := m.read(chain)
	if err != nil {
		return err
	}
	maps.DeleteFunc(to.blocks, func(block int64, _ uint64) bool { return within(into, to, block) })
	maps.DeleteFunc(content, func(block int64, _ uint64) bool { return !within(into, to, block) })
	maps.Copy(to.blocks, content)
	to.stored()
	to.modified()
	return nil
}

// CommitOffline writes the overlay's own blocks into another image and does not change the
// overlay, like qemu-img commit -d after a rebase onto it. No process may have either open.
func (m *Images) CommitOffline(overlay string, base hv.Image) error {
	into := base.Path
	m.mu.Lock()
	defer m.mu.Unlock()
	from, err := m.openForWrite(overlay)
	if err != nil {
		return err
	}
	to, err := m.openForWrite(into)
	if err != nil {
		return err
	}
	if err := cmp.Or(from.decrypt(hv.Image{Format: Qcow2, Path: overlay, LUKSSecret: base.LUKSSecret}), to.decrypt(base)); err != nil {
		return err
	}
	if from.size != sizeOf(base, to) {
		return fmt.Errorf("commit %s into %s: sizes differ: %d and %d", overlay, into, from.size, sizeOf(base, to))
	}
	if to.full {
		return &fs.PathError{Op: "write", Path: into, Err: errNoSpace}
	}
	for block, value := range from.blocks {
		to.blocks[block+headerBlocks(base)] = value
	}
	to.stored()
	to.modified()
	return nil
}

// Rebase changes only the backing image in an overlay's header, like qemu-img rebase -u.
func (m *Images) Rebase(overlay string, backing hv.Image) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.openForWrite(overlay)
	if err != nil {
		return err
	}
	if img.format != Qcow2 {
		return fmt.Errorf("rebase %s: a %s image has no backing image", overlay, img.format)
	}
	img.backing = backing
	return nil
}

// Touch makes an image look written, and keeps its content.
func (m *Images) Touch(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	if err == nil {
		img.modified()
	}
	return err
}

// CopyBlocks copies n blocks from first on between raw images, ignoring the locks of src: guests
// may write it meanwhile.
func (m *Images) CopyBlocks(src, dst string, first, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.copyBlocks(src, dst, first, n)
}

func (m *Images) copyBlocks(src, dst string, first, n int64) error {
	from, err := m.open(src)
	if err != nil {
		return err
	}
	to, err := m.openForWrite(dst)
	if err != nil {
		return err
	}
	for b := first; b < first+n; b++ {
		if err := to.write(dst, b, from.blocks[b]); err != nil {
			return err
		}
	}
	return nil
}
