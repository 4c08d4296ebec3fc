// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"cmp"

	"github.com/volferry/volferry/internal/api"
)

func (u *Uplink) placedVolumes(granted []api.Attachment) []placed {
	var out []placed
	for i := range granted {
		a := &granted[i]
		out = append(out, placed{cmp.Or(a.VolumeName, a.VolumeID), &a.Location})
	}
	v, _, _ := u.View()
	for i := range v.Volumes {
		if volume := &v.Volumes[i]; len(volume.Attachments) == 0 && u.ours(volume.Host) {
			out = append(out, placed{volume.Name, &volume.Location})
		}
	}
	return out
}

// addVolumes adds to a pool each volume outside it with a path that leads into the pool by a
// symbolic link. The registry finds the other volumes by path.
func addVolumes(pools []api.Pool, volumes []placed, files *namedFiles) {
	for i := range pools {
		p := &pools[i]
		real := *p
		real.Path = files.at(p.Path)
		for _, v := range volumes {
			if v.at.Pool == p.Name {
				continue
			}
			for _, image := range imagesAt(v.at) {
				if !p.HasBelow(image) && real.Covers(files.at(image)) {
					p.Uses = append(p.Uses, api.PoolUse{Volume: bounded(v.name, maxUseText), Path: bounded(image, maxUsePath)})
				}
			}
		}
	}
}
