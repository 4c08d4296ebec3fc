// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// CheckPaused refuses a move with all guests paused if no method could move the volume from this
// instance: because of its image, the instance and its disk, or other users on this host. beside
// are the ids of the instances that have the volume in the registry; all are paused. It changes
// nothing.
func (m *Manager) CheckPaused(ctx context.Context, vol api.Volume, att api.Attachment, beside []string) error {
	if err := m.checkRecorded(ctx, vol); err != nil {
		return err
	}
	s := &move.Spec{VolumeID: vol.ID, VolumeName: vol.Name, Src: vol.Location, Method: move.MethodSave}
	if err := m.checkSource(ctx, s); err != nil {
		return err
	}
	dom, disk, err := m.checkDisk(ctx, s, att)
	if err != nil {
		return err
	}
	if reason := immovable(disk); reason != "" {
		return unsupported(s, "disk %s of instance %s %s", s.Target, dom.Name, reason)
	}
	if err := m.checkQcow2(ctx, s, dom); err != nil {
		return err
	}
	// The host that copies repeats this when the guests are saved.
	if err := m.checkPlace(ctx, s.VolumeName, s.Src, att.InstanceID); err != nil {
		return err
	}
	return m.env.Look.CheckSrcNotInUse(ctx, s, beside...)
}

// CheckCopySaved makes all checks of CopySaved, and returns the location of dst. It changes
// nothing.
func (m *Manager) CheckCopySaved(ctx context.Context, in api.CopySaved) (api.Location, error) {
	h, err := m.ledHistory(ctx, in.MigrationID)
	if err != nil {
		return api.Location{}, err
	}
	if err := h.mayCopyLed(); err != nil {
		return api.Location{}, err
	}
	spec, err := m.preflightLed(ctx, move.MethodSave, in)
	if err != nil {
		return api.Location{}, err
	}
	return spec.Dst, nil
}
