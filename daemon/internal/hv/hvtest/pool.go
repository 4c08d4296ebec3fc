// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// AddPool adds a directory pool; every image in its directory is its volume.
func (f *Fake) AddPool(info hv.PoolInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pools[info.Name] = &info
}

// Pools implements hv.Hypervisor.
func (f *Fake) Pools(ctx context.Context) ([]hv.PoolInfo, error) {
	var all []hv.PoolInfo
	err := f.call(ctx, "Pools", func() error {
		for _, name := range slices.Sorted(maps.Keys(f.pools)) {
			all = append(all, *f.pools[name])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// RoundUp gives a pool extents of this size.
func (f *Fake) RoundUp(pool string, extentBytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.extents[pool] = extentBytes
}

// RoundedBytes implements hv.Hypervisor.
func (f *Fake) RoundedBytes(ctx context.Context, pool string, sizeBytes int64) (int64, error) {
	rounded := sizeBytes
	err := f.call(ctx, "RoundedBytes", func() error {
		if p := f.pools[pool]; p == nil || !p.Active {
			return fmt.Errorf("%w: no active pool %s", hv.ErrNotFound, pool)
		}
		rounded = f.rounded(pool, sizeBytes)
		return nil
	})
	return rounded, err
}

func (f *Fake) rounded(pool string, sizeBytes int64) int64 {
	extent := max(1, f.extents[pool])
	return (sizeBytes + extent - 1) / extent * extent
}

// CreateVolume implements hv.Hypervisor.
func (f *Fake) CreateVolume(ctx context.Context, pool, name, format string, sizeBytes int64, backing []hv.Image) (*hv.PoolVolume, error) {
	var vol *hv.PoolVolume
	err := f.call(ctx, "CreateVolume", func() error {
		at, err := f.volumePath(pool, name)
		if err != nil {
			return err
		}
		if f.files[at] != nil {
			return fmt.Errorf("%w: %s in %s", hv.ErrExists, name, pool)
		}
		if rounded := f.rounded(pool, sizeBytes); rounded != sizeBytes {
			return fmt.Errorf("%w: the pool makes it %d bytes instead of %d", hv.ErrUnsupported, rounded, sizeBytes)
		}
		img := &image{format: format, size: sizeBytes}
		if len(backing) > 0 {
			img.backing = backing[0]
		}
		if f.pools[pool].Type == hv.ConnectorPool {
			img.opID = hv.OpOf(ctx)
		}
		if err := f.create(at, img); err != nil {
			return err
		}
		vol = f.volume(at)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return vol, nil
}

// LookupVolume implements hv.Hypervisor.
func (f *Fake) LookupVolume(ctx context.Context, pool, name string) (*hv.PoolVolume, error) {
	var vol *hv.PoolVolume
	err := f.call(ctx, "LookupVolume", func() error {
		at, err := f.volumePath(pool, name)
		if err != nil {
			return err
		}
		switch {
		case f.files[at] != nil:
			vol = f.volume(at)
		case f.pools[pool].Type == hv.ConnectorPool && f.ofTarget(at):
			return fmt.Errorf("%w: volume %s in pool %s", hv.ErrNotConnected, name, pool)
		default:
			return fmt.Errorf("%w: volume %s in pool %s", hv.ErrNotFound, name, pool)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return vol, nil
}

// VolumeAt implements hv.Hypervisor.
func (f *Fake) VolumeAt(ctx context.Context, at string) (string, error) {
	var pool string
	err := f.call(ctx, "VolumeAt", func() error {
		for _, name := range slices.Sorted(maps.Keys(f.pools)) {
			if p := f.pools[name]; p.Active && f.files[at] != nil && path.Dir(at) == p.Path {
				pool = name
				return nil
			}
		}
		return fmt.Errorf("%w: no pool has a volume at %s", hv.ErrNotFound, at)
	})
	return pool, err
}

// DeleteVolume implements hv.Hypervisor.
func (f *Fake) DeleteVolume(ctx context.Context, pool, name string) error {
	return f.call(ctx, "DeleteVolume", func() error {
		at, err := f.volumePath(pool, name)
		if err != nil {
			return err
		}
		if readers, writers := f.countHolders(at); readers+writers > 0 {
			f.violate("%s was deleted from its pool while a domain had it open", at)
		}
		delete(f.files, at)
		return nil
	})
}

// ExtendVolume implements hv.Hypervisor.
func (f *Fake) ExtendVolume(ctx context.Context, pool, name string, sizeBytes int64) error {
	return f.call(ctx, "ExtendVolume", func() error {
		at, err := f.volumePath(pool, name)
		switch {
		case err != nil:
			return err
		case !f.pools[pool].Extends:
			return fmt.Errorf("%w: pool %s", hv.ErrUnsupported, pool)
		case f.files[at] == nil:
			return fmt.Errorf("%w: volume %s in pool %s", hv.ErrNotFound, name, pool)
		case f.files[at].wholeBytes() > sizeBytes, f.rounded(pool, sizeBytes) != sizeBytes:
			return fmt.Errorf("%w: %d bytes", hv.ErrUnsupported, sizeBytes)
		}
		f.files[at].size = sizeBytes
		return nil
	})
}

func (f *Fake) volumePath(pool, name string) (string, error) {
	p := f.pools[pool]
	if p == nil || !p.Active {
		return "", fmt.Errorf("%w: no active pool %s", hv.ErrNotFound, pool)
	}
	return path.Join(p.Path, name), nil
}

func (f *Fake) volume(at string) *hv.PoolVolume {
	img := f.files[at]
	return &hv.PoolVolume{Name: path.Base(at), Path: at, Format: img.format, CapacityBytes: img.wholeBytes(), Block: strings.HasPrefix(at, "/dev/"), OpID: img.opID}
}
