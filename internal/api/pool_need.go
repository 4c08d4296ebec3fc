// SPDX-License-Identifier: Apache-2.0

package api

import (
	"path"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/shell"
)

// Details of DrainVolume.Error for a volume that is outside the pool, but needs an image below the
// pool's path: the path of a base image, or of the volume's own image.
const (
	DetailBaseImage  = "base_image"
	DetailImageBelow = "image_below"
)

// pathPools are the types of pools with a path that has only the pool's volumes below it. The path
// of a pool of disks or LUNs is a directory of the whole host, such as /dev or /dev/disk/by-path.
var pathPools = []string{"dir", "fs", "netfs", "vstorage", "logical", "zfs", "connector"}

// HasBelow reports whether an image of the pool's host is below the path of the pool. It resolves
// no links.
func (p *Pool) HasBelow(image string) bool {
	if p.Path == "" || !slices.Contains(pathPools, p.Type) {
		return false
	}
	dir, image := path.Clean(p.Path), path.Clean(image)
	if strings.HasPrefix(image, strings.TrimSuffix(dir, "/")+"/") {
		return true
	}
	// A logical volume is also below /dev/mapper, with each dash of its group doubled.
	group, isGroup := strings.CutPrefix(dir, "/dev/")
	mapped, isMapped := strings.CutPrefix(image, "/dev/mapper/"+strings.ReplaceAll(group, "-", "--")+"-")
	return isGroup && isMapped && !strings.HasPrefix(mapped, "-")
}

// Covers reports whether path is the path of the pool or below it.
func (p *Pool) Covers(path string) bool { return p.HasBelow(path) || p.HasBelow(path+"/any") }

// NeedsPool returns an error with the next command if a volume is outside the pool, but its image
// or a base image is below the pool's path: the volume would be lost with the pool.
func (v *Volume) NeedsPool(pool *Pool) *Error {
	if v.Location.Pool == pool.Name || v.Host != pool.Host {
		return nil
	}
	if pool.HasBelow(v.Location.Path) {
		return Errorf(CodeVolumeInUse, "volume %s is at %s, which is below pool %s and not in it. Next: %s",
			v.Name, v.Location.Path, pool.Name, shell.Line("volferryctl", "volume", "migrate", v.Name, "--to-pool", "POOL")).
			With(DetailImageBelow, v.Location.Path)
	}
	for _, base := range v.Location.Backing.Images() {
		if !pool.HasBelow(base.Path) {
			continue
		}
		to := v.Location.Pool
		if to == "" {
			to = "POOL"
		}
		return Errorf(CodeVolumeInUse, "volume %s is not in pool %s, and reads its base image %s there. Next: %s, without --keep-base, which copies that into the volume; "+
			"or move the base image and rebase the clone", v.Name, pool.Name, base.Path, shell.Line("volferryctl", "volume", "migrate", v.Name, "--to-pool", to)).
			With(DetailBaseImage, base.Path)
	}
	return nil
}

// Outside reports whether a volume of a drain is outside the pool, and is listed because it needs
// an image below the pool's path.
func (v *DrainVolume) Outside() bool { return v.ReadsBase() || v.hasDetail(DetailImageBelow) }

// ReadsBase reports whether the volume is Outside and needs a base image below the path.
func (v *DrainVolume) ReadsBase() bool { return v.hasDetail(DetailBaseImage) }

func (v *DrainVolume) hasDetail(name string) bool {
	return v.Error != nil && v.Error.Details[name] != nil
}
