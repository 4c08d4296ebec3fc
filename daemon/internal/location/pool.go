// SPDX-License-Identifier: Apache-2.0

package location

import (
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
