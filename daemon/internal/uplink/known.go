// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// KnownInstance finds an instance of this host, by its id, its name or the beginning
// of its id, by what the registry last said and has granted since: for those who
// cannot ask it now.
func (u *Uplink) KnownInstance(_ context.Context, ref string) (api.Instance, bool) {
	v, _, _ := u.View()
	var found []api.Instance
	for i := range v.Instances {
		inst := &v.Instances[i]
		if !u.ours(api.Attachment{Host: inst.Host}) {
			continue
		}
		if inst.ID == ref || inst.Name == ref {
			return u.withGranted(*inst), true
		}
		if len(ref) >= minPrefix && strings.HasPrefix(inst.ID, ref) {
			found = append(found, *inst)
		}
	}
	if len(found) != 1 {
		return api.Instance{}, false
	}
	return u.withGranted(found[0]), true
}

// withGranted puts what was granted since the view was read into the slots that
// were empty then.
func (u *Uplink) withGranted(inst api.Instance) api.Instance {
	inst.BlockDeviceMappings = slices.Clone(inst.BlockDeviceMappings)
	for _, a := range u.granted() {
		if a.InstanceID != inst.ID {
			continue
		}
		for i := range inst.BlockDeviceMappings {
			if s := &inst.BlockDeviceMappings[i]; s.Device == a.Device && s.VolumeID == nil {
				s.VolumeID, s.AttachmentID = &a.VolumeID, &a.ID
			}
		}
	}
	return inst
}

// KnownVolume finds a volume by id, name or the beginning of its id, by what the
// registry last said, with the attachments that this host has of it.
func (u *Uplink) KnownVolume(ref string) (api.Volume, bool) {
	v, _, _ := u.View()
	var found []api.Volume
	for _, vol := range v.Volumes {
		if vol.ID == ref || vol.Name == ref {
			return u.withOwnAttachments(vol), true
		}
		if len(ref) >= minPrefix && strings.HasPrefix(vol.ID, ref) {
			found = append(found, vol)
		}
	}
	if len(found) != 1 {
		return api.Volume{}, false
	}
	return u.withOwnAttachments(found[0]), true
}

func (u *Uplink) withOwnAttachments(vol api.Volume) api.Volume {
	vol.Attachments = slices.DeleteFunc(u.granted(), func(a api.Attachment) bool { return a.VolumeID != vol.ID })
	return vol
}
