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

// InPool completes a location that has only a path: if an active pool of this host has the image,
// also through links, it adds the pool. If the path leads through a link in the directory of a
// pool of files, InPool replaces it by the pool's path, because CheckPool accepts no other. In a
// directory that does not answer, it compares paths as text. For devices InPool asks libvirt,
// which does not know thin volumes in the directory of a volume group. Errors are the
// hypervisor's.
func InPool(ctx context.Context, h PoolVolumes, l api.Location) (api.Location, error) {
	in, _, err := inPool(ctx, h, l)
	return in, err
}

// InPoolOnceConnected does the same as InPool for a volume of a target. If the volume is not
// connected, it adds the pool if only one pool may have the volume. After the connection CheckPool
// shows whether the pool has it.
func InPoolOnceConnected(ctx context.Context, h PoolVolumes, l api.Location) (api.Location, error) {
	in, may, err := inPool(ctx, h, l)
	if err != nil || in.Pool != "" || len(may) != 1 {
		return in, err
	}
	return may[0], nil
}

// inPool does the work of InPool. If no pool has the image, may has its location in each pool that
// sees the image only once connected.
func inPool(ctx context.Context, h PoolVolumes, l api.Location) (in api.Location, may []api.Location, err error) {
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
			may = append(may, there)
		case !errors.Is(err, hv.ErrNotFound):
			return l, nil, err
		}
	}
	return l, may, nil
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
