// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/preflight"
	"github.com/volferry/volferry/internal/api"
)

// CheckPaused refuses a move with all guests paused if no method could move the volume from this
// instance, because of its image, the instance, its disk, or other users on this host. instances
// are the ids of the volume's instances in the registry, which do not count as other users. It
// changes nothing.
func (p *Parts) CheckPaused(ctx context.Context, vol api.Volume, att api.Attachment, instances []string) error {
	if err := p.preflight.CheckRecorded(ctx, vol); err != nil {
		return err
	}
	s := &move.Spec{VolumeID: vol.ID, VolumeName: vol.Name, Src: vol.Location, Method: move.MethodSave}
	if err := p.preflight.CheckSource(ctx, s); err != nil {
		return err
	}
	dom, disk, err := p.preflight.CheckDisk(ctx, s, att)
	if err != nil {
		return err
	}
	if reason := preflight.Immovable(disk); reason != "" {
		return preflight.Unsupported(s, "disk %s of instance %s %s", s.Target, dom.Name, reason)
	}
	if err := p.preflight.CheckQcow2(ctx, s, dom); err != nil {
		return err
	}
	// The copying host repeats this when the guests are saved.
	if err := p.preflight.CheckPlace(ctx, s.VolumeName, s.Src, att.InstanceID); err != nil {
		return err
	}
	return p.look.CheckSrcNotInUse(ctx, s, instances...)
}

// CheckCopySaved makes the checks of CopySaved, and returns the location of dst. It changes
// nothing.
func (p *Parts) CheckCopySaved(ctx context.Context, in api.CopySaved) (api.Location, error) {
	h, err := p.ledHistory(ctx, in.MigrationID)
	if err != nil {
		return api.Location{}, err
	}
	if err := mayCopyLed(h); err != nil {
		return api.Location{}, err
	}
	spec, err := p.preflightLed(ctx, move.MethodSave, in)
	if err != nil {
		return api.Location{}, err
	}
	return spec.Dst, nil
}
