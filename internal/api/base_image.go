// SPDX-License-Identifier: Apache-2.0

package api

import (
	"path"
	"slices"
	"strings"
)

// DetailBaseImage is a detail of the error of a volume of a drain that is not in the pool, and has
// a base image there: the path of that image.
const DetailBaseImage = "base_image"

// pathPools are the types of pools whose volumes are below the path of the pool, and nothing else
// is. Pools of disks and of LUNs have directories of the whole host, as /dev and /dev/disk/by-path.
var pathPools = []string{"dir", "fs", "netfs", "vstorage", "logical", "zfs", "connector"}

// hasBelow says whether an image of the host of the pool is below the path of the pool, by its path.
func (p *Pool) hasBelow(image string) bool {
	if p.Path == "" || !slices.Contains(pathPools, p.Type) {
		return false
	}
	dir, image := path.Clean(p.Path), path.Clean(image)
	if strings.HasPrefix(image, strings.TrimSuffix(dir, "/")+"/") {
		return true
	}
	// A logical volume is below /dev/mapper too, with each dash of its group doubled.
	group, isGroup := strings.CutPrefix(dir, "/dev/")
	mapped, isMapped := strings.CutPrefix(image, "/dev/mapper/"+strings.ReplaceAll(group, "-", "--")+"-")
	return isGroup && isMapped && !strings.HasPrefix(mapped, "-")
}

// ReadsFrom says, as an error that names what to do, that a volume is not in a pool of its host
// and has a base image there: it is lost with the pool. It is nil if that is not so.
func (v *Volume) ReadsFrom(pool *Pool) *Error {
	if v.Location.Pool == pool.Name || v.Host != pool.Host {
		return nil
	}
	for _, base := range v.Location.Backing.Images() {
		if !pool.hasBelow(base.Path) {
			continue
		}
		to := v.Location.Pool
		if to == "" {
			to = "POOL"
		}
		return Errorf(CodeVolumeInUse, "volume %s is not in pool %s, and reads its base image %s there. Next: %s, without --keep-base, which copies that into the volume; "+
			"or move the base image and rebase the clone", v.Name, pool.Name, base.Path, ShellLine("volferryctl", "volume", "migrate", v.Name, "--to-pool", to)).
			With(DetailBaseImage, base.Path)
	}
	return nil
}

// ReadsBase says whether a volume of a drain is listed because it reads a base image in the pool,
// and is not in the pool itself.
func (v *DrainVolume) ReadsBase() bool {
	return v.Error != nil && v.Error.Details[DetailBaseImage] != nil
}
