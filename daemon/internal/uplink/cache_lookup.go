// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"slices"

	"github.com/volferry/volferry/internal/api"
)

// KnownInstance returns an instance of this host by its id, name, or the beginning of its id.
func (m *Memory) KnownInstance(_ context.Context, ref string) (api.Instance, bool) {
	v, _, _ := m.View()
	here := slices.DeleteFunc(slices.Clone(v.Instances), func(i api.Instance) bool { return !m.ours(i.Host) })
	found := api.Lookup(here, ref, func(i *api.Instance) (id, name string) { return i.ID, i.Name })
	if len(found) != 1 {
		return api.Instance{}, false
	}
	inst := found[0]
	return withGranted(inst, slices.DeleteFunc(m.granted(), func(a api.Attachment) bool { return a.InstanceID != inst.ID })), true
}

func withGranted(inst api.Instance, granted []api.Attachment) api.Instance {
	inst.BlockDeviceMappings = slices.Clone(inst.BlockDeviceMappings)
	for _, a := range granted {
		for i := range inst.BlockDeviceMappings {
			if s := &inst.BlockDeviceMappings[i]; s.Device == a.Device && s.VolumeID == nil {
				s.VolumeID, s.AttachmentID = &a.VolumeID, &a.ID
			}
		}
	}
	return inst
}

// KnownVolume returns a volume of the last view by its id, name, or the beginning of its id, with
// its attachments at this host.
func (m *Memory) KnownVolume(ref string) (api.Volume, bool) {
	v, _, _ := m.View()
	found := api.Lookup(v.Volumes, ref, func(v *api.Volume) (id, name string) { return v.ID, v.Name })
	if len(found) != 1 {
		return api.Volume{}, false
	}
	vol := found[0]
	vol.Attachments = slices.DeleteFunc(m.granted(), func(a api.Attachment) bool { return a.VolumeID != vol.ID })
	return vol, true
}

// AttachedHere returns the volumes of the last view that are attached to instances of this host.
func (m *Memory) AttachedHere() []api.Volume {
	v, _, _ := m.View()
	own := attachmentsBy(m.granted(), volumeOf)
	return slices.DeleteFunc(slices.Clone(v.Volumes), func(vol api.Volume) bool { return len(own[vol.ID]) == 0 })
}

// VolumesHere returns this host's volumes of the last view, attached or not.
func (m *Memory) VolumesHere() []api.Volume {
	v, _, _ := m.View()
	return slices.DeleteFunc(slices.Clone(v.Volumes), func(vol api.Volume) bool { return !m.ours(vol.Host) })
}

// Known returns an attachment of this host by its id or the beginning of its id.
func (m *Memory) Known(_ context.Context, ref string) (api.Attachment, bool) {
	found := api.Lookup(m.granted(), ref, func(a *api.Attachment) (id, name string) { return a.ID, "" })
	if len(found) != 1 {
		return api.Attachment{}, false
	}
	return found[0], true
}
