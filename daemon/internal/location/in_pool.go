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
	"github.com/volferry/volferry/internal/medium"
)

// InPool completes a location that has only a path: if the path leads to an image of an active
// pool of this host, it adds the pool. It replaces a path through a link in the directory of a
// pool of files by the volume's path in the pool, because CheckPool accepts no other. In a
// directory that does not answer, it compares paths as text. For devices it asks libvirt, which
// does not know thin volumes. Errors are the hypervisor's.
func InPool(ctx context.Context, h PoolVolumes, l api.Location) (api.Location, error) {
	in, _, err := inPool(ctx, h, l)
	return in, err
}

// InPoolOnceConnected does the same as InPool for a volume of a storage target. If the volume is
// not connected, and only one pool may have the volume, it adds this pool.
func InPoolOnceConnected(ctx context.Context, h PoolVolumes, l api.Location) (api.Location, error) {
	in, possible, err := inPool(ctx, h, l)
	if err != nil || in.Pool != "" || len(possible) != 1 {
		return in, err
	}
	return possible[0], nil
}

// inPool is InPool. If no pool has the image, possible has its location in each pool that sees it
// only once connected.
func inPool(ctx context.Context, h PoolVolumes, l api.Location) (in api.Location, possible []api.Location, err error) {
	if l.Pool != "" || l.Path == "" || !medium.Of(l.Path).Path {
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
			possible = append(possible, there)
		case !errors.Is(err, hv.ErrNotFound):
			return l, nil, err
		}
	}
	return l, possible, nil
}

// hasItsDirectory reports whether the pool's directory contains exactly the pool's volumes, by
// their names. Pools of disks and of LUNs use directories of the whole host, such as /dev.
func hasItsDirectory(pool hv.PoolInfo) bool {
	return HoldsFiles(pool) || slices.Contains([]string{"logical", "zfs", hv.ConnectorPool}, pool.Type)
}

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

// deviceIn returns the name of the link in dir, a directory of devices, that leads to the device
// at path, or "". The path may have another directory, such as /dev/mapper for a logical volume.
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
