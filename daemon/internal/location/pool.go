// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Pool returns the pool with this name if it can have volumes now. Errors: not_found,
// state_forbidden (it is not active), invalid_argument (its volumes have no path on this host).
func Pool(pools []hv.PoolInfo, name string) (hv.PoolInfo, error) {
	i := slices.IndexFunc(pools, func(p hv.PoolInfo) bool { return p.Name == name })
	if i < 0 {
		return hv.PoolInfo{}, api.NotFoundHere("pool", name)
	}
	pool := pools[i]
	switch {
	case !pool.Active && pool.Type == hv.ConnectorPool:
		return pool, api.Errorf(api.CodeStateForbidden, "pool %s cannot be used now: %s", name, pool.Problem)
	case !pool.Active:
		return pool, api.Errorf(api.CodeStateForbidden, "pool %s is not active; start it with `%s`", name, shell.Line("virsh", "pool-start", "--", name))
	case pool.Path == "":
		return pool, api.Errorf(api.CodeInvalidArgument, "pool %s is of type %s, whose volumes have no path on this host", name, pool.Type)
	}
	return pool, nil
}

// HoldsFiles reports whether the volumes of a pool are files. Other pools have block devices.
func HoldsFiles(pool hv.PoolInfo) bool {
	return slices.Contains([]string{"dir", "fs", "netfs", "vstorage"}, pool.Type)
}

// FreeBytes returns the free space of a pool. For a pool of files it returns the result of ofDir:
// libvirt's number is from the pool's last refresh, and includes blocks that the filesystem
// reserves.
func FreeBytes(pool hv.PoolInfo, ofDir func(dir string) (int64, error)) (int64, error) {
	if !HoldsFiles(pool) {
		return pool.FreeBytes, nil
	}
	return ofDir(pool.Path)
}

// Shared reports whether pools of this type are always on several hosts, so that a pool of the
// same name has the same bytes there. The operator lists other shared pools, such as LUNs: with a
// pool wrongly taken for shared, two guests would get different bytes.
func Shared(poolType string) bool { return poolType == "netfs" }

// OpenByMany reports whether several QEMU processes can have a raw image in a pool of this type
// open.
func OpenByMany(poolType string) bool {
	return slices.Contains([]string{"dir", "fs", "netfs", "logical", "disk", "iscsi", "mpath", "scsi", hv.ConnectorPool}, poolType)
}

// PoolVolumes has the hypervisor's calls that CheckPool needs.
type PoolVolumes interface {
	Pools(ctx context.Context) ([]hv.PoolInfo, error)
	LookupVolume(ctx context.Context, pool, name string) (*hv.PoolVolume, error)
}

// CheckPool refuses a location if its path is not the path of the pool's volume on this host:
// another image may be there. Below the directory of a pool of files it compares the paths as
// text, because a link to the volume may be replaced later. verdict begins the message, as in
// "cannot attach volume x". Errors are *api.Error or the hypervisor's.
func CheckPool(ctx context.Context, h PoolVolumes, l api.Location, verdict string) error {
	if l.Pool == "" {
		return nil
	}
	pools, err := h.Pools(ctx)
	if err != nil {
		return err
	}
	pool, err := Pool(pools, l.Pool)
	if err != nil {
		return err
	}
	found, err := h.LookupVolume(ctx, l.Pool, l.Name)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		return api.Errorf(api.CodeNotFound, "%s: pool %s has no %s on this host; `%s` shows what it has", verdict, l.Pool, l.Name, shell.Line("virsh", "vol-list", "--", l.Pool))
	case err != nil:
		return err
	}
	same, err := SameImage(found.Path, l.Path)
	switch {
	case err != nil:
		return api.Errorf(api.CodeStateForbidden, "%s: nobody can tell whether it is at %s: %v", verdict, l.Path, err)
	case !same, HoldsFiles(pool) && below(l.Path, pool.Path) && l.Path != filepath.Clean(found.Path):
		return api.Errorf(api.CodeConflict, "%s: it is at %s, and pool %s has %s at %s on this host; give the pool the same path on every host",
			verdict, l.Path, l.Pool, l.Name, found.Path)
	}
	return nil
}
