// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// CheckRecorded refuses a move if this host's journal and the registry have different locations
// for the volume. The journal also has this host's parts in moves that the registry led.
func (c *Checks) CheckRecorded(ctx context.Context, vol api.Volume) error {
	return image.Prefixed("cannot migrate volume "+vol.Name, c.which.CheckVolumeRecorded(ctx, vol))
}

// CheckPlace refuses a location from the registry, which another host may have chosen, if no
// volume may be there on this host. Outside pools it also allows an image that the definition of
// one of the instances names: for src pass the instances that have the volume, for dst none.
func (c *Checks) CheckPlace(ctx context.Context, volume string, l api.Location, instances ...string) error {
	return look.HVRefusal(c.cfg.Rules.CheckHeld(ctx, c.held, l, "cannot migrate volume "+volume, instances...))
}

// checkBases refuses a linked clone with a base image that belongs to a volume or migration:
// another host may have reported its base images.
func (c *Checks) checkBases(ctx context.Context, s *move.Spec) error {
	if s.Src.Backing == "" {
		return nil
	}
	claims, err := c.claims.Look(ctx)
	if err != nil {
		return look.HVRefusal(err)
	}
	base, holder, err := claims.BasesHolder(s.Src)
	switch {
	case err != nil:
		return look.UserUnknown(base, err)
	case holder.Words != "":
		return api.Errorf(api.CodeVolumeInUse, "cannot migrate volume %s: its base image %s %s", s.VolumeName, base, holder.Words)
	}
	return nil
}
