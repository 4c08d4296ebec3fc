// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Guests is the part of a hypervisor that CheckHeld needs.
type Guests interface {
	PoolVolumes
	Domain(ctx context.Context, id string) (*hv.Domain, error)
}

// CheckHeld is CheckLocation for the place of a volume of these instances. Outside of pools it
// also accepts an image that the definition of one of the instances names here: it was there
// before it became a volume.
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
