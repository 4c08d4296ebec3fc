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

// InPool names the pool of a location that is known by its path alone, if an active pool of this
// host has the image, by whatever link its path leads there. Path stays as it is, unless it leads
// by a link in the directory of a pool of files: others can change that link, and CheckPool takes
// the path of the pool alone, which is the path then. A directory that does not answer is compared
// as text. Libvirt is asked whether it has a device: it knows no thin volumes in the directory of a
// volume group. Errors are the hypervisor's.
func InPool(ctx context.Context, h PoolVolumes, l api.Location) (api.Location, error) {
	in, _, err := inPool(ctx, h, l)
	return in, err
}

// InPoolOnceConnected is InPool for a volume of a target, which need not be connected: then its
// pool is named if no other one may have it. Once it is connected CheckPool reports whether that
// pool has it.
func InPoolOnceConnected(ctx context.Context, h PoolVolumes, l api.Location) (api.Location, error) {
	in, may, err := inPool(ctx, h, l)
	if err != nil || in.Pool != "" || len(may) != 1 {
		return in, err
	}
	return may[0], nil
}

// inPool is InPool. If no pool is seen to have the image, may is where it is in each pool that
// sees it only once it is connected.
func inPool(ctx context.Context, h PoolVolumes, l api.Location) (in api.Location, may []api.Location, err error) {
	if l.Pool != "" || l.Path == "" || api.IsNetwork(l.Path) {
		return l, nil, nil
	}
	pools, err := h.Pools(ctx)
	if err != nil {
		return l, nil, err
	}
	for _, p := range pools {
		if !p.Active || p.Path == "" || !hasItsDirectory(p) {
			continue
		}
		name := nameIn(p, l.Path)
		if name == "" {
			continue
		}
		there := l
		there.Pool, there.Name = p.Name, name
		if HoldsFiles(p) {
			if below(l.Path, p.Path) {
				there.Path = filepath.Join(p.Path, name)
			}
			return there, nil, nil
		}
		switch _, err := h.LookupVolume(ctx, p.Name, name); {
		case err == nil:
			return there, nil, nil
		case errors.Is(err, hv.ErrNotConnected):
			may = append(may, there)
		case !errors.Is(err, hv.ErrNotFound):
			return l, nil, err
		}
	}
	return l, may, nil
}

// hasItsDirectory reports whether the volumes of a pool are in its directory, by their names, and
// nothing else is. Pools of disks and of LUNs have directories of the whole host, as
// /dev and /dev/disk/by-path.
func hasItsDirectory(pool hv.PoolInfo) bool {
	return HoldsFiles(pool) || slices.Contains([]string{"logical", "zfs", hv.ConnectorPool}, pool.Type)
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
