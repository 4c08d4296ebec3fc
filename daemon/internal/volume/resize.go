// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// Resize makes a volume larger. The volume may be unattached, at an instance that is off, or at a
// running guest, which sees the new size at once. Resize returns the volume when image, guest and
// registry have the size.
func (m *Manager) Resize(ctx context.Context, opID, ref string, asked api.VolumeResize) (api.Volume, error) {
	_, err := m.admission.Submit(ctx, request.Request{
		OpID: opID, Kind: kindResize, Body: resizeBody{ref, asked},
		Decide: func(ctx context.Context) (request.Input, error) { return m.decideResize(ctx, ref, asked) },
	})
	if err != nil {
		return api.Volume{}, err
	}
	// The caller does not wait for a migration of another volume of the instance, which may take
	// hours.
	if _, err := m.admission.Granted(ctx, opID, stepNameReserve); err != nil {
		return api.Volume{}, err
	}
	st, err := m.admission.End(ctx, opID, fmt.Sprintf("volume %.64s is being resized", ref))
	if err != nil {
		return api.Volume{}, err
	}
	if len(st.Outputs[stepNameRecord]) == 0 {
		return api.Volume{}, api.Errorf(api.CodeNotYourHost, "the image of volume %.64s has %s now, but the volume was taken from this host meanwhile; ask the registry where it is", ref, humanize.ExactBytes(asked.SizeBytes))
	}
	vol, err := volumeOf(st, stepNameRecord)
	if err == nil && vol.SizeBytes < asked.SizeBytes {
		return api.Volume{}, api.Errorf(api.CodeConflict, "volume %s has %s in the registry and not %s, because this host was fenced, or the registry restored, while it was made larger; its image may have that already, and nothing is lost: ask again",
			vol.Name, humanize.ExactBytes(vol.SizeBytes), humanize.ExactBytes(asked.SizeBytes)).With("size_bytes", vol.SizeBytes)
	}
	return vol, err
}

func (m *Manager) decideResize(ctx context.Context, ref string, asked api.VolumeResize) (*resizeInput, error) {
	if err := asked.Check(); err != nil {
		return nil, err
	}
	vol, err := m.env.Registry.Volume(ctx, ref)
	if err != nil {
		return nil, err
	}
	id, err := m.host(ctx)
	if err != nil {
		return nil, err
	}
	host, err := m.env.Registry.Host(ctx, id)
	if err != nil {
		return nil, err
	}
	in := &resizeInput{
		VolumeID: vol.ID, VolumeName: vol.Name, Location: vol.Location, SizeBytes: asked.SizeBytes,
		Host: host.ID, Epoch: host.Epoch, Generation: vol.Generation,
	}
	if err := in.checkVolume(vol); err != nil {
		return nil, err
	}
	if err := m.reachForResize(ctx, in, vol, host); err != nil {
		return nil, err
	}
	if err := m.env.checkRecorded(ctx, vol, in.verdict()); err != nil {
		return nil, err
	}
	return in, m.checkSize(ctx, in)
}

func (m *Manager) reachForResize(ctx context.Context, in *resizeInput, vol api.Volume, host api.Host) error {
	if len(vol.Attachments) == 0 {
		if err := m.checkReach(ctx, vol, host.ID); err != nil {
			return err
		}
		if err := m.env.Files.MayWrite(in.Location.Path); err != nil {
			return err
		}
		return m.env.checkUnused(ctx, vol.Location.Path, in.verdict())
	}
	a := vol.Attachments[0]
	in.InstanceID, in.InstanceName, in.Device = a.InstanceID, cmp.Or(a.InstanceName, a.InstanceID), a.Device
	switch {
	case a.Host == "":
		return in.cannot(api.CodeStateForbidden, "its instance %s is on no host; detach the volume, or unshelve the instance first", in.InstanceName)
	case a.Host != host.ID && a.Host != host.Name:
		return in.cannot(api.CodeNotYourHost, "its instance %s is on host %s; run this there, or ask the registry", in.InstanceName, a.Host)
	case a.State != api.AttachmentAttached:
		return in.cannot(api.CodeStateForbidden, "its attachment to instance %s is %s", in.InstanceName, a.State).With("attachment_id", a.ID)
	case a.Mode == api.ModeRO:
		return in.cannot(api.CodeStateForbidden, "instance %s has it read-only; detach it first", in.InstanceName).With("attachment_id", a.ID)
	}
	dom, err := m.env.Guests.Domain(ctx, in.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		return in.cannot(api.CodeNotFound, "its instance %s is not defined on this host", in.InstanceName)
	}
	if err != nil {
		return fmt.Errorf("read instance %s: %w", in.InstanceName, err)
	}
	return m.env.checkHolder(ctx, in, dom)
}

func (m *Manager) checkSize(ctx context.Context, in *resizeInput) error {
	l := in.Location
	if err := m.checkPlace(ctx, in); err != nil {
		return err
	}
	info, err := m.env.inspect(ctx, in)
	if err != nil {
		return err
	}
	in.Block = info.Block
	if info.Block && l.Format == api.FormatQcow2 {
		return in.cannot(api.CodeUnsupportedDisk, "it is a qcow2 image on the block device %s, which would have to be made larger with it; move it to a file, or to a raw device, first (volferryctl volume migrate)", l.Path)
	}
	return in.part().check(ctx, m.env, info.SizeBytes)
}

// checkPlace refuses an image in a forbidden place. The image of an instance may be anywhere,
// unless its path is a link.
func (m *Manager) checkPlace(ctx context.Context, in *resizeInput) error {
	return m.rules.CheckHeld(ctx, m.env.holders(), in.Location, in.verdict(), in.InstanceID)
}
