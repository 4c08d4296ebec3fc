// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// The methods below check the locations of attachments of an instance from the shelf, as an attach
// does.

// Connect prepares an attachment's location for a future domain of this host, after checks of
// pool, image, size and users. It returns the chain, top first. Errors are typed for the runner.
// It may be repeated.
func (m *Manager) Connect(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error) {
	connect := connectSteps{m.env}
	if err := connect.connectDevice(ctx, onShelf(vol, att)); err != nil {
		return nil, err
	}
	chain, err := m.Chain(ctx, vol, att)
	if err != nil {
		return nil, err
	}
	return chain, m.env.Images.Connect(ctx, att.Location.Path)
}

// Chain makes the checks of Connect and returns the chain. It changes nothing.
func (m *Manager) Chain(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error) {
	in := onShelf(vol, att)
	err := m.env.checkBefore(ctx, in)
	return in.chain(), err
}

// CheckLocation refuses a location from the registry that no volume of this host may have. verdict
// begins the error, as in "cannot wake instance x". Errors are typed for the runner.
func (m *Manager) CheckLocation(ctx context.Context, l api.Location, verdict string) error {
	return request.HV(m.env.rules.CheckLocation(ctx, m.env.Pools, l, verdict))
}

// CheckImages refuses a location if the path of its image, or of a base image, is no longer an
// image, is now a link, or is in a forbidden place.
func (m *Manager) CheckImages(l api.Location) error { return request.HV(m.env.rules.CheckImages(l)) }

// Disconnect ends this host's use of the location, unless a domain or another attachment needs it.
// It refuses if the instance's process has the image open and libvirt shows no such disk.
func (m *Manager) Disconnect(ctx context.Context, vol api.Volume, att api.Attachment) error {
	in := onShelf(vol, att)
	if _, err := m.env.sure(ctx, in); err != nil {
		return err
	}
	connect := connectSteps{m.env}
	return connect.disconnect(ctx, in, connect.logNotStored)
}

func onShelf(vol api.Volume, att api.Attachment) *input {
	return &input{
		AttachmentID: att.ID, VolumeID: vol.ID, VolumeName: vol.Name, InstanceID: att.InstanceID, InstanceName: cmp.Or(att.InstanceName, att.InstanceID),
		DiskAttachment: att.DiskAttachment, Shareable: vol.Multiattach, Location: att.Location, Host: att.Host, HostName: att.Host,
	}
}
