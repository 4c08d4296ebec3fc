// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Image returns this host's view of a volume's image.
func (m *Manager) Image(ctx context.Context, ref string) (api.VolumeImage, error) {
	v, err := m.env.Registry.Volume(ctx, ref)
	if err != nil {
		return api.VolumeImage{}, err
	}
	cannot := "cannot look at the image of volume " + v.Name
	if err := m.rules.CheckHeld(ctx, m.env.holders(), v.Location, cannot, location.InstancesOf(v)...); err != nil {
		return api.VolumeImage{}, request.HV(err)
	}
	if err := m.env.checkRecorded(ctx, v, cannot); err != nil {
		return api.VolumeImage{}, err
	}
	info, err := m.env.Images.Inspect(ctx, v.Location)
	if errors.Is(err, image.ErrAbsent) {
		return api.VolumeImage{}, api.Errorf(api.CodeNotFound, "%s: there is nothing at %s on this host", cannot, v.Location.Path)
	}
	return api.VolumeImage{Path: v.Location.Path, SizeBytes: info.SizeBytes}, err
}
