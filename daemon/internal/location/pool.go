// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Pool returns the pool of that name if volumes can be in it now. Errors:
// not_found, state_forbidden (it is not active), invalid_argument (its volumes
// have no path on this host).
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

// HoldsFiles says whether the volumes of a pool are files, named by us. Those of
// the other pools are block devices, which have no format but raw.
func HoldsFiles(pool hv.PoolInfo) bool {
	return slices.Contains([]string{"dir", "fs", "netfs", "vstorage"}, pool.Type)
}

// FreeBytes is how much may still be put into a pool. In a pool of files it is what ofDir
// says of its directory: libvirt's number is from the pool's last refresh, and counts
// blocks that the filesystem keeps for itself.
func FreeBytes(pool hv.PoolInfo, ofDir func(dir string) (int64, error)) (int64, error) {
	if !HoldsFiles(pool) {
		return pool.FreeBytes, nil
	}
	return ofDir(pool.Path)
}

// Shared says whether pools of this type are on several hosts by their nature: a
// pool of the same name is the same bytes elsewhere. A LUN or a cluster filesystem
// may be too, but nothing in the type tells, and one that is taken for shared and
// is not would give two guests different bytes under one name: those the operator
// lists.
func Shared(poolType string) bool { return poolType == "netfs" }

// OpenByMany says whether what is in a pool of this type can be open in several
// QEMU processes as raw: files of a filesystem that the kernel has mounted, and
// block devices.
func OpenByMany(poolType string) bool {
	return slices.Contains([]string{"dir", "fs", "netfs", "logical", "disk", "iscsi", "mpath", "scsi"}, poolType)
}

// PoolVolumes is what CheckPool needs of a hypervisor.
type PoolVolumes interface {
	Pools(ctx context.Context) ([]hv.PoolInfo, error)
	LookupVolume(ctx context.Context, pool, name string) (*hv.PoolVolume, error)
}

// CheckPool refuses a location whose path is not that of its pool on this host: the
// path may be another image. What is begun with "cannot attach volume x" goes on with
// why. Errors are *api.Error or the hypervisor's.
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
