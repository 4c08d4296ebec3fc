// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func (d *domain) noteDirty(target string, block int64) {
	for _, b := range d.bitmaps[target] {
		if b.recording {
			b.units[block*BlockSize/b.unitBytes] = true
		}
	}
}

func (d *domain) bitmap(target, name string) *bitmap {
	for _, b := range d.bitmaps[target] {
		if b.name == name {
			return b
		}
	}
	return nil
}

func (d *domain) addBitmap(target, name string, unitBytes int64) error {
	switch {
	case d.bitmap(target, name) != nil:
		return fmt.Errorf("%w: bitmap %s", hv.ErrExists, name)
	case unitBytes < BlockSize || unitBytes&(unitBytes-1) != 0:
		return fmt.Errorf("add bitmap %s: granularity %d is no power of two", name, unitBytes)
	}
	d.bitmaps[target] = append(d.bitmaps[target], &bitmap{name: name, unitBytes: unitBytes, recording: true, units: make(map[int64]bool)})
	return nil
}

// CanTrack implements hv.DirtyTracker.
func (f *Fake) CanTrack(ctx context.Context, id, target string) error {
	return f.call(ctx, "CanTrack", func() error {
		_, _, err := f.liveDisk(id, target)
		return err
	})
}

// StartTracking implements hv.DirtyTracker.
func (f *Fake) StartTracking(ctx context.Context, id, target, name string, unitBytes int64) error {
	return f.call(ctx, "StartTracking", func() error {
		dom, _, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		return dom.addBitmap(target, name, unitBytes)
	})
}

// SwapTracking implements hv.DirtyTracker.
func (f *Fake) SwapTracking(ctx context.Context, id, target, oldName, newName string, unitBytes int64) error {
	return f.call(ctx, "SwapTracking", func() error {
		dom, _, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		old := dom.bitmap(target, oldName)
		if old == nil {
			return fmt.Errorf("%w: bitmap %s", hv.ErrNotFound, oldName)
		}
		if err := dom.addBitmap(target, newName, unitBytes); err != nil {
			return err
		}
		old.recording = false
		return nil
	})
}

// Tracking implements hv.DirtyTracker.
func (f *Fake) Tracking(ctx context.Context, id, target string) ([]hv.DirtyBitmap, error) {
	var all []hv.DirtyBitmap
	err := f.call(ctx, "Tracking", func() error {
		dom, _, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		for _, b := range dom.bitmaps[target] {
			all = append(all, hv.DirtyBitmap{Name: b.name, Recording: b.recording, UnitBytes: b.unitBytes, DirtyBytes: int64(len(b.units)) * b.unitBytes})
		}
		return nil
	})
	return all, err
}

// DirtyUnits implements hv.DirtyTracker.
func (f *Fake) DirtyUnits(ctx context.Context, id, target, name string) ([]hv.DirtyRange, error) {
	var all []hv.DirtyRange
	err := f.call(ctx, "DirtyUnits", func() error {
		dom, _, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		b := dom.bitmap(target, name)
		switch {
		case b == nil:
			return fmt.Errorf("%w: bitmap %s", hv.ErrNotFound, name)
		case b.recording:
			return fmt.Errorf("bitmap %s still records", name)
		}
		for _, unit := range slices.Sorted(maps.Keys(b.units)) {
			off := unit * b.unitBytes
			n := min(b.unitBytes, dom.sizes[target]-off)
			if last := len(all) - 1; last >= 0 && all[last].Offset+all[last].Bytes == off {
				all[last].Bytes += n
				continue
			}
			all = append(all, hv.DirtyRange{Offset: off, Bytes: n})
		}
		return nil
	})
	return all, err
}

// StopTracking implements hv.DirtyTracker.
func (f *Fake) StopTracking(ctx context.Context, id, target, prefix string) error {
	return f.call(ctx, "StopTracking", func() error {
		dom, _, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		dom.bitmaps[target] = slices.DeleteFunc(dom.bitmaps[target], func(b *bitmap) bool { return strings.HasPrefix(b.name, prefix) })
		return nil
	})
}

// RemoveBitmap plays a person who removes a dirty bitmap through QEMU's monitor.
func (f *Fake) RemoveBitmap(id, target, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, _, err := f.liveDisk(id, target)
	if err == nil {
		dom.bitmaps[target] = slices.DeleteFunc(dom.bitmaps[target], func(b *bitmap) bool { return b.name == name })
	}
	return err
}
