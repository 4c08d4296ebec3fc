// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Guests has the hypervisor's calls that CheckHeld needs.
type Guests interface {
	PoolVolumes
	Domain(ctx context.Context, id string) (*hv.Domain, error)
}

// CheckHeld makes the checks of CheckLocation for the location of a volume of these instances.
// Outside of pools it also accepts an image that the definition of one of the instances names,
// because the instance used it before it became a volume.
func (r Rules) CheckHeld(ctx context.Context, h Guests, l api.Location, verdict string, instances ...string) error {
	for _, id := range instances {
		if l.Pool != "" || id == "" {
			continue
		}
		dom, err := h.Domain(ctx, id)
		switch {
		case errors.Is(err, hv.ErrNotFound):
		case err != nil:
			return err
		case slices.ContainsFunc(dom.Config, func(d hv.Disk) bool { return len(d.Chain) > 0 && d.Top().Path == l.Path }):
			return r.CheckImages(l)
		}
	}
	return r.CheckLocation(ctx, h, l, verdict)
}

// InstancesOf returns the ids of the instances with the volume.
func InstancesOf(v api.Volume) (ids []string) {
	for _, a := range v.Attachments {
		ids = append(ids, a.InstanceID)
	}
	return ids
}
