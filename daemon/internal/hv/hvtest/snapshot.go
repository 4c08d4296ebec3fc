// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

// ImageSnapshot returns the named snapshot of an image, or the zero value. It and the changes of
// snapshots are calls of the hypervisor, which has the key of the cluster.
func (f *Fake) ImageSnapshot(ctx context.Context, path, name string) (s ImageSnapshot, err error) {
	err = f.call(ctx, "ImageSnapshot", func() error {
		img, err := f.open(path)
		if err != nil {
			return err
		}
		if found := img.snapshots[name]; found != nil {
			s = *found
			s.Written = s.writes != img.writes
		}
		return nil
	})
	return s, err
}

// MakeImageSnapshot makes a snapshot of an image.
func (f *Fake) MakeImageSnapshot(ctx context.Context, path, name string) error {
	return f.call(ctx, "MakeImageSnapshot", func() error {
		img, err := f.open(path)
		if err != nil {
			return err
		}
		if img.snapshots[name] != nil {
			return fmt.Errorf("snapshot %s of %s: %w", name, path, fs.ErrExist)
		}
		if img.snapshots == nil {
			img.snapshots = map[string]*ImageSnapshot{}
		}
		f.snapshots++
		img.snapshots[name] = &ImageSnapshot{ID: f.snapshots, writes: img.writes}
		return nil
	})
}

// RemoveImageSnapshot removes a snapshot, unless it has another id. It returns nil if there is
// none.
func (f *Fake) RemoveImageSnapshot(ctx context.Context, path, name string, id uint64) error {
	return f.call(ctx, "RemoveImageSnapshot", func() error {
		img, err := f.open(path)
		if err != nil {
			return err
		}
		switch s := img.snapshots[name]; {
		case s == nil:
		case s.ID != id:
			return fmt.Errorf("snapshot %s of %s is another one by now", name, path)
		case s.Protected:
			return fmt.Errorf("snapshot %s of %s is protected", name, path)
		default:
			delete(img.snapshots, name)
		}
		return nil
	})
}

// SnapshotsOf returns the names of the snapshots of an image.
func (m *Images) SnapshotsOf(path string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(img.snapshots))
}

// ProtectSnapshot protects a snapshot, as a person does who clones it.
func (m *Images) ProtectSnapshot(path, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	if err == nil && img.snapshots[name] == nil {
		err = fmt.Errorf("snapshot %s of %s: %w", name, path, fs.ErrNotExist)
	}
	if err == nil {
		img.snapshots[name].Protected = true
	}
	return err
}
