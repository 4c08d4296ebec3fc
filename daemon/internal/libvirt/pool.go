// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func (ps *pools) Pools(ctx context.Context) ([]hv.PoolInfo, error) {
	s, err := ps.connection.poolReads(ctx)
	if err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	pools, err := call(ctx, s, func(lv *golibvirt.Libvirt) ([]golibvirt.StoragePool, error) {
		pools, _, err := lv.ConnectListAllStoragePools(1, 0)
		return pools, err
	})
	if err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	var found []hv.PoolInfo
	for _, pool := range pools {
		info, err := readPool(ctx, s, pool)
		if errors.Is(err, hv.ErrNotFound) {
			continue // deleted after the list was made
		}
		if err != nil {
			return nil, fmt.Errorf("list pools: read pool %s: %w", pool.Name, err)
		}
		found = append(found, *info)
	}
	return found, nil
}

func readPool(ctx context.Context, s *session, pool golibvirt.StoragePool) (*hv.PoolInfo, error) {
	info := &hv.PoolInfo{Name: pool.Name}
	doc, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
		state, capacity, _, available, err := lv.StoragePoolGetInfo(pool)
		if err != nil {
			return "", err
		}
		info.Active = golibvirt.StoragePoolState(state) == golibvirt.StoragePoolRunning
		info.CapacityBytes, info.FreeBytes = int64(capacity), int64(available)
		return lv.StoragePoolGetXMLDesc(pool, 0)
	})
	if err != nil {
		return nil, err
	}
	var x libvirtxml.StoragePool
	if err := x.Unmarshal(doc); err != nil {
		return nil, fmt.Errorf("parse pool XML: %w", err)
	}
	info.Type = x.Type
	if x.Target != nil {
		info.Path = x.Target.Path
	}
	return info, nil
}

func activePool(ctx context.Context, s *session, name string) (golibvirt.StoragePool, *hv.PoolInfo, error) {
	pool, err := call(ctx, s, func(lv *golibvirt.Libvirt) (golibvirt.StoragePool, error) {
		return lv.StoragePoolLookupByName(name)
	})
	if err != nil {
		return pool, nil, err
	}
	info, err := readPool(ctx, s, pool)
	if err == nil && !info.Active {
		err = fmt.Errorf("%w: the pool is not active", hv.ErrNotFound)
	}
	return pool, info, err
}

func (ps *pools) CreateVolume(ctx context.Context, pool, name, format string, sizeBytes int64, backing []hv.Image) (*hv.PoolVolume, error) {
	var v *hv.PoolVolume
	err := ps.changePool(ctx, pool, func(ctx context.Context, s *session) (err error) {
		v, err = createVolume(ctx, s, pool, name, format, sizeBytes, backing)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create volume %s in pool %s: %w", name, pool, err)
	}
	return v, nil
}

func createVolume(ctx context.Context, s *session, poolName, name, format string, sizeBytes int64, backing []hv.Image) (*hv.PoolVolume, error) {
	pool, info, err := activePool(ctx, s, poolName)
	if err != nil {
		return nil, err
	}
	doc, err := volumeXML(info.Type, name, format, sizeBytes, backing)
	if err != nil {
		return nil, err
	}
	vol, err := callWithin(ctx, s, longCallTimeout, func(lv *golibvirt.Libvirt) (golibvirt.StorageVol, error) {
		return lv.StorageVolCreateXML(pool, doc, 0)
	})
	if err != nil {
		return nil, err
	}
	v, err := readVolume(ctx, s, vol)
	if err != nil || v.CapacityBytes == sizeBytes {
		return v, err
	}
	// The caller has not called RoundedBytes, or the pool's type does not show its rounding.
	err = fmt.Errorf("%w: the pool makes it %d bytes instead of %d", hv.ErrUnsupported, v.CapacityBytes, sizeBytes)
	return nil, errors.Join(err, deleteVolume(ctx, s, vol))
}

// extentProbe is a volume that is made to learn the size of a pool's extents. If a killed daemon
// leaves one, the next daemon deletes it.
const extentProbe = "volferry-extent"

// RoundedBytes implements hv.Hypervisor. libvirt does not report extents, so extentBytes finds
// their size in a logical pool. Other pools make a volume of the requested size, or refuse.
func (ps *pools) RoundedBytes(ctx context.Context, poolName string, sizeBytes int64) (int64, error) {
	rounded := sizeBytes
	err := ps.changePool(ctx, poolName, func(ctx context.Context, s *session) error {
		pool, info, err := activePool(ctx, s, poolName)
		if err != nil || info.Type != "logical" {
			return err
		}
		extent, err := extentBytes(ctx, s, pool)
		if err == nil && extent <= 0 {
			err = fmt.Errorf("%w: the pool makes volumes of %d bytes", hv.ErrUnsupported, extent)
		}
		if err != nil {
			return err
		}
		rounded = (sizeBytes + extent - 1) / extent * extent
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("look at the extents of pool %s: %w", poolName, err)
	}
	return rounded, nil
}

// extentBytes returns the size of the smallest volume of a pool of logical volumes.
func extentBytes(ctx context.Context, s *session, pool golibvirt.StoragePool) (int64, error) {
	doc, err := volumeXML("logical", extentProbe, "raw", 1, nil)
	if err != nil {
		return 0, err
	}
	vol, err := callWithin(ctx, s, longCallTimeout, func(lv *golibvirt.Libvirt) (golibvirt.StorageVol, error) {
		return lv.StorageVolCreateXML(pool, doc, 0)
	})
	if said(err, golibvirt.ErrStorageVolExist) {
		vol, err = findVolume(ctx, s, pool.Name, extentProbe)
	}
	if err != nil {
		return 0, err
	}
	v, err := readVolume(ctx, s, vol)
	if err := errors.Join(err, deleteVolume(ctx, s, vol)); err != nil {
		return 0, err
	}
	return v.CapacityBytes, nil
}

var filePools = map[string]bool{"dir": true, "fs": true, "netfs": true, "vstorage": true}

func volumeXML(poolType, name, format string, sizeBytes int64, backing []hv.Image) (string, error) {
	bytes := func(n int64) *libvirtxml.StorageVolumeSize {
		return &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: uint64(n)}
	}
	vol := libvirtxml.StorageVolume{Name: name, Capacity: bytes(sizeBytes), Target: &libvirtxml.StorageVolumeTarget{}}
	switch {
	case filePools[poolType]:
		vol.Allocation = bytes(0)
		vol.Target.Format = &libvirtxml.StorageVolumeTargetFormat{Type: format}
		if format == "qcow2" {
			vol.Target.Compat = "1.1" // 0.10 cannot record discards
		}
	case format != "raw":
		return "", fmt.Errorf("%w: %s volumes in a pool of type %s", hv.ErrUnsupported, format, poolType)
	}
	if len(backing) > 0 {
		vol.BackingStore = &libvirtxml.StorageVolumeBackingStore{
			Path: backing[0].Path, Format: &libvirtxml.StorageVolumeTargetFormat{Type: backing[0].Format},
		}
	}
	// Other pools get no allocation: for a value below the capacity libvirt's logical pools would
	// create a thin snapshot that fills up.
	doc, err := vol.Marshal()
	if err != nil {
		return "", fmt.Errorf("write volume XML: %w", err)
	}
	return doc, nil
}

func (ps *pools) LookupVolume(ctx context.Context, pool, name string) (*hv.PoolVolume, error) {
	found := make(chan *hv.PoolVolume, 1)
	err := ps.askPool(ctx, pool, func(ctx context.Context, s *session) error {
		vol, err := findVolume(ctx, s, pool, name)
		if err != nil {
			return err
		}
		v, err := readVolume(ctx, s, vol)
		found <- v
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up volume %s in pool %s: %w", name, pool, err)
	}
	return <-found, nil
}

// VolumeAt finds the pool of a volume by its path. If libvirt does not know the path, it first
// refreshes the active device pools with a directory above the path: other programs make volumes
// too.
func (ps *pools) VolumeAt(ctx context.Context, path string) (string, error) {
	pool, err := ps.poolOf(ctx, path)
	if !errors.Is(err, hv.ErrNotFound) {
		return pool, err
	}
	pools, err := ps.Pools(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range pools {
		if !p.Active || filePools[p.Type] || p.Path == "" || !strings.HasPrefix(path, p.Path+"/") {
			continue
		}
		if err := ps.refresh(ctx, p.Name); err != nil && !errors.Is(err, hv.ErrNotFound) {
			return "", err
		}
	}
	return ps.poolOf(ctx, path)
}

func (ps *pools) poolOf(ctx context.Context, path string) (string, error) {
	s, err := ps.connection.poolReads(ctx)
	if err != nil {
		return "", fmt.Errorf("find the pool of %s: %w", path, err)
	}
	vol, err := call(ctx, s, func(lv *golibvirt.Libvirt) (golibvirt.StorageVol, error) {
		return lv.StorageVolLookupByPath(path)
	})
	if err != nil {
		return "", fmt.Errorf("find the pool of %s: %w", path, err)
	}
	return vol.Pool, nil
}

func (ps *pools) refresh(ctx context.Context, name string) error {
	err := ps.askPool(ctx, name, func(ctx context.Context, s *session) error {
		pool, _, err := activePool(ctx, s, name)
		if err != nil {
			return err
		}
		_, err = callWithin(ctx, s, longCallTimeout, func(lv *golibvirt.Libvirt) (none, error) {
			return none{}, lv.StoragePoolRefresh(pool, 0)
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("refresh pool %s: %w", name, err)
	}
	return nil
}

// DeleteVolume durably deletes a pool volume. It returns nil if there is none.
func (ps *pools) DeleteVolume(ctx context.Context, pool, name string) error {
	err := ps.changePool(ctx, pool, func(ctx context.Context, s *session) error {
		vol, err := findVolume(ctx, s, pool, name)
		if err == nil {
			err = deleteVolume(ctx, s, vol)
		}
		if err != nil && !said(err, golibvirt.ErrNoStorageVol) {
			return err
		}
		return ps.syncPool(ctx, s, pool) // also for an absent volume: a killed daemon may have deleted it without the sync
	})
	if err != nil {
		return fmt.Errorf("delete volume %s of pool %s: %w", name, pool, err)
	}
	return nil
}

// syncPool makes the names in a pool of files durable: libvirt unlinks a file and does not sync
// its directory, so a deleted volume could reappear after a power cut.
func (ps *pools) syncPool(ctx context.Context, s *session, name string) error {
	_, info, err := activePool(ctx, s, name)
	if err != nil || !filePools[info.Type] {
		return err
	}
	return ps.library.sync(info.Path)
}

// ExtendVolume implements hv.Hypervisor. It always refuses: libvirt cannot grow device volumes,
// and QEMU or Volferry grows files.
func (*pools) ExtendVolume(_ context.Context, pool, name string, _ int64) error {
	return fmt.Errorf("extend volume %s of pool %s: %w", name, pool, hv.ErrUnsupported)
}

// findVolume looks up a volume after a refresh of the pool, since libvirt's list may be stale.
func findVolume(ctx context.Context, s *session, poolName, name string) (golibvirt.StorageVol, error) {
	pool, _, err := activePool(ctx, s, poolName)
	if err != nil {
		return golibvirt.StorageVol{}, err
	}
	return callWithin(ctx, s, longCallTimeout, func(lv *golibvirt.Libvirt) (golibvirt.StorageVol, error) {
		if err := lv.StoragePoolRefresh(pool, 0); err != nil {
			return golibvirt.StorageVol{}, fmt.Errorf("refresh pool: %w", err)
		}
		return lv.StorageVolLookupByName(pool, name)
	})
}

func deleteVolume(ctx context.Context, s *session, vol golibvirt.StorageVol) error {
	_, err := callWithin(ctx, s, longCallTimeout, func(lv *golibvirt.Libvirt) (none, error) {
		return none{}, lv.StorageVolDelete(vol, golibvirt.StorageVolDeleteNormal)
	})
	return err
}

func readVolume(ctx context.Context, s *session, vol golibvirt.StorageVol) (*hv.PoolVolume, error) {
	doc, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
		return lv.StorageVolGetXMLDesc(vol, 0)
	})
	if err != nil {
		return nil, err
	}
	var x libvirtxml.StorageVolume
	if err := x.Unmarshal(doc); err != nil {
		return nil, fmt.Errorf("parse volume XML: %w", err)
	}
	if x.Capacity == nil || x.Target == nil {
		return nil, errors.New("parse volume XML: no capacity or target")
	}
	v := &hv.PoolVolume{
		Name:          x.Name,
		Path:          x.Target.Path,
		Format:        "raw", // volumes of block pools have no format element
		CapacityBytes: int64(x.Capacity.Value),
		Block:         x.Type == "block",
	}
	if x.Target.Format != nil {
		v.Format = x.Target.Format.Type
	}
	return v, nil
}
