// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"maps"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// AddBitmap makes an empty dirty bitmap in an image, as `qemu-img bitmap` does, or as QEMU does for
// a domain with the image open.
func (m *Images) AddBitmap(path, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	if err == nil {
		img.addBitmap(name)
		m.storeBitmaps(path, img)
	}
	return err
}

// DisableBitmap stops the recording of an image's dirty bitmap, as `qemu-img bitmap --disable`
// does.
func (m *Images) DisableBitmap(path, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	if err == nil {
		img.idle = map[string]bool{name: true}
		m.storeBitmaps(path, img)
	}
	return err
}

// storeBitmaps writes the bitmaps of an image to its file, as QEMU does at the end of a domain
// that has it open.
func (m *Images) storeBitmaps(path string, img *image) {
	if readers, writers := m.holders(path); readers+writers == 0 {
		img.modified()
	}
}

// DropBitmap removes a dirty bitmap of an image.
func (m *Images) DropBitmap(path, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	if err == nil {
		delete(img.bitmaps, name)
		m.storeBitmaps(path, img)
	}
	return err
}

// Bitmaps returns the names of the dirty bitmaps of an image.
func (m *Images) Bitmaps(path string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(img.bitmaps)), nil
}

// BitmapBlocks returns the blocks that a dirty bitmap of an image has recorded.
func (m *Images) BitmapBlocks(path, name string) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(img.bitmaps[name]))
}

func (img *image) addBitmap(name string) map[int64]bool {
	if img.bitmaps[name] == nil {
		if img.bitmaps == nil {
			img.bitmaps = make(map[string]map[int64]bool)
		}
		img.bitmaps[name] = make(map[int64]bool)
	}
	return img.bitmaps[name]
}

// StoredBitmaps implements hv.Hypervisor.
func (f *Fake) StoredBitmaps(ctx context.Context, id string) (all []hv.StoredBitmap, err error) {
	err = f.call(ctx, "StoredBitmaps", func() error {
		dom, err := f.findActive(id)
		if err != nil {
			return err
		}
		for _, disk := range dom.Live {
			for _, layer := range disk.Chain {
				img := f.files[layer.Path]
				if img == nil {
					continue
				}
				for _, name := range slices.Sorted(maps.Keys(img.bitmaps)) {
					all = append(all, hv.StoredBitmap{Name: name, Node: "node-of-" + layer.Path, Path: layer.Path, Idle: img.idle[name]})
				}
			}
		}
		return nil
	})
	return all, err
}

// continueBitmaps makes empty bitmaps with the same names in a new overlay, as libvirt does.
func continueBitmaps(from, overlay *image) {
	if from == nil {
		return
	}
	for name := range from.bitmaps {
		if !from.idle[name] {
			overlay.addBitmap(name)
		}
	}
}

// joinBitmaps adds the bitmaps of the images that a job has copied to its target's, as libvirt
// does before the pivot, without knowledge of the target's earlier content. A target of another
// format than qcow2 gets none, and libvirt omits bitmaps that record no writes.
func (f *Fake) joinBitmaps(copied []hv.Image, to *image) {
	if to.format != Qcow2 {
		return
	}
	for _, layer := range copied {
		if img := f.files[layer.Path]; img != nil {
			for name, written := range img.bitmaps {
				if !img.idle[name] {
					maps.Copy(to.addBitmap(name), written)
				}
			}
		}
	}
}
