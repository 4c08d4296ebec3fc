// SPDX-License-Identifier: Apache-2.0

package hvtest

// Sync puts an image with its modification time on stable storage, as fsync does. QEMU's own
// flushes omit the time, and with cache='unsafe' QEMU makes none.
func (m *Images) Sync(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if img := m.files[path]; img != nil {
		img.kept = img.written
		img.stored()
	}
}

// FailSync is a Sync that fails: as on Linux the unflushed data is lost, and counts as stored for
// later calls. It returns how many blocks were lost.
func (m *Images) FailSync(path string) (lost int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	img := m.files[path]
	if img == nil {
		return 0
	}
	for block, value := range img.unstored {
		if img.blocks[block] != value {
			lost++
		}
		if value == 0 {
			delete(img.blocks, block)
			continue
		}
		img.blocks[block] = value
	}
	img.kept = img.written
	img.stored()
	return lost
}

// SetCache sets the cache mode of a disk, in the definition and in the process.
func (f *Fake) SetCache(id, target, mode string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, live, err := f.liveDisk(id, target)
	if err != nil {
		return err
	}
	live.Cache = mode
	for i := range dom.Config {
		if dom.Config[i].Target == target {
			dom.Config[i].Cache = mode
		}
	}
	return nil
}
