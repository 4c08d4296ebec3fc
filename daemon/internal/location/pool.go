// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Pool returns the pool with this name if it can have volumes now. Errors: not_found,
// state_forbidden (it is not active), invalid_argument (its volumes have no path on this
// host).
func Pool(pools []hv.PoolInfo, name string) (hv.PoolInfo, error) {
	i := slices.IndexFunc(pools, func(p hv.PoolInfo) bool { return p.Name == name })
	if i < 0 {
		return hv.PoolInfo{}, api.Errorf(api.CodeNotFound, "no pool %s on this host; `volferryctl pool list` shows them", name)
	}
	pool := pools[i]
	switch {
	case !pool.Active:
		return pool, api.Errorf(api.CodeStateForbidden, "pool %s is not active; start it with `virsh pool-start %s`", name, name)
	case pool.Path == "":
		return pool, api.Errorf(api.CodeInvalidArgument, "pool %s is of type %s, whose volumes have no path on this host", name, pool.Type)
	}
	return pool, nil
}

// HoldsFiles says whether the volumes of a pool are files, whose names we choose. Volumes
// of other pools are block devices, whose format can only be raw.
func HoldsFiles(pool hv.PoolInfo) bool {
	return slices.Contains([]string{"dir", "fs", "netfs", "vstorage"}, pool.Type)
}

// FreeBytes returns the free space of a pool. For a pool of files it is what ofDir says of
// the directory: libvirt's number is from the pool's last refresh, and includes blocks that
// the filesystem keeps for itself.
func FreeBytes(pool hv.PoolInfo, ofDir func(dir string) (int64, error)) (int64, error) {
	if !HoldsFiles(pool) {
		return pool.FreeBytes, nil
	}
	return ofDir(pool.Path)
}

// InPool names the pool of a location that is known by its path alone, if an active pool of
// this host has the image, by whatever link its path leads there. Path stays as it is. A
// directory that does not answer is compared as text.
func InPool(l api.Location, pools []hv.PoolInfo) api.Location {
	if l.Pool != "" || l.Path == "" {
		return l
	}
	for _, p := range pools {
		if !p.Active || p.Path == "" || !hasItsDirectory(p) {
			continue
		}
		if name := nameIn(p, l.Path); name != "" {
			l.Pool, l.Name = p.Name, name
			return l
		}
	}
	return l
}

// hasItsDirectory says whether all that is in the directory of a pool is in the pool, by the
// name that it has there. Pools of disks and of LUNs have directories of the whole host, as
// /dev and /dev/disk/by-path.
func hasItsDirectory(pool hv.PoolInfo) bool {
	return HoldsFiles(pool) || slices.Contains([]string{"logical", "zfs"}, pool.Type)
}

// nameIn returns the name that an image has in a pool, "" if it is not in the directory of
// the pool.
func nameIn(pool hv.PoolInfo, path string) string {
	if filepath.Dir(path) == filepath.Clean(pool.Path) {
		return filepath.Base(path)
	}
	if !HoldsFiles(pool) {
		return deviceIn(pool.Path, path)
	}
	at, err := resolve(path)
	if err != nil {
		return ""
	}
	if same, err := SameImage(filepath.Dir(at), pool.Path); err != nil || !same {
		return ""
	}
	return filepath.Base(at)
}

// deviceIn returns the name of the link in a directory of devices that leads to the device
// at path, "" if none does: a logical volume is below /dev/mapper too.
func deviceIn(dir, path string) string {
	links, err := os.ReadDir(dir)
	if err != nil || !IsOfDevices(path) {
		return ""
	}
	for _, link := range links {
		if same, err := SameImage(filepath.Join(dir, link.Name()), path); err == nil && same {
			return link.Name()
		}
	}
	return ""
}

// Shared says whether pools of this type are always on several hosts, so that a pool of the
// same name has the same bytes elsewhere. A LUN or a cluster filesystem may be shared too,
// but its type does not tell. If a pool were wrongly taken for shared, two guests would get
// different bytes under one name; so the operator lists those pools.
func Shared(poolType string) bool { return poolType == "netfs" }

// OpenByMany says whether several QEMU processes can have a raw image in a pool of this
// type open: files of a filesystem that the kernel has mounted, and block devices.
func OpenByMany(poolType string) bool {
	return slices.Contains([]string{"dir", "fs", "netfs", "logical", "disk", "iscsi", "mpath", "scsi"}, poolType)
}

// PoolVolumes is the part of a hypervisor that CheckPool needs.
type PoolVolumes interface {
	Pools(ctx context.Context) ([]hv.PoolInfo, error)
	LookupVolume(ctx context.Context, pool, name string) (*hv.PoolVolume, error)
}

// CheckPool refuses a location whose path is not the path that its pool has for it on this
// host: another image may be at that path. What begins the message, as in "cannot attach
// volume x". Errors are *api.Error or the hypervisor's.
func CheckPool(ctx context.Context, h PoolVolumes, l api.Location, verdict string) error {
	if l.Pool == "" {
		return nil
	}
	pools, err := h.Pools(ctx)
	if err != nil {
		return err
	}
	if _, err := Pool(pools, l.Pool); err != nil {
		return err
	}
	found, err := h.LookupVolume(ctx, l.Pool, l.Name)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		return api.Errorf(api.CodeNotFound, "%s: pool %s has no %s on this host; `virsh vol-list %s` shows what it has", verdict, l.Pool, l.Name, l.Pool)
	case err != nil:
		return err
	}
	same, err := SameImage(found.Path, l.Path)
	switch {
	case err != nil:
		return api.Errorf(api.CodeStateForbidden, "%s: nobody can tell whether it is at %s: %v", verdict, l.Path, err)
	case !same:
		return api.Errorf(api.CodeConflict, "%s: it is at %s, and pool %s has %s at %s on this host; give the pool the same path on every host",
			verdict, l.Path, l.Pool, l.Name, found.Path)
	}
	return nil
}
