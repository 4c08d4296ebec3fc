// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Plan makes the checks of Start and returns the plan of `volume migrate`, or its refusal. It
// changes nothing.
func (m *Manager) Plan(ctx context.Context, volumeID string, target api.MigrationTarget) (api.MigrationPlan, error) {
	s, err := m.specFor(ctx, StartRequest{VolumeID: volumeID, Target: target, Composite: true})
	if err != nil {
		return api.MigrationPlan{}, request.Refused(err) // in the words of Start
	}
	plan := api.MigrationPlan{
		VolumeID: s.VolumeID, VolumeName: s.VolumeName,
		InstanceID: s.InstanceID, InstanceName: s.InstanceName, Device: s.Target,
		Src: s.Src, Dst: s.Dst, CreatesDestination: s.DstOrigin() == move.DstMade,
		Allocation: s.Allocation, Method: s.Method, Verify: s.Verify, DeleteSource: s.DeleteSource, Warning: strings.TrimPrefix(strings.Join(append([]string{s.RoomNote}, s.Notes...), "; "), "; "),
	}
	if parked := m.admission.Parked([]string{s.Key()}); parked != nil {
		plan.Warning = strings.TrimPrefix(plan.Warning+"; "+request.StandsInTheWay(parked), "; ")
	}
	if plan.CreatesDestination && s.Dst.Pool != "" {
		plan.Dst = withoutID(s.Dst, s.MigrationID)
	}
	switch s.DstOrigin() {
	case move.DstConnected:
		if plan.ConnectsDestination, err = m.Preflight.IsAway(ctx, s.Dst.Path); err != nil {
			return api.MigrationPlan{}, err
		}
	case move.DstExists:
		h, err := m.Released.LeaverOf(ctx, s.Dst.Path)
		if err != nil {
			return api.MigrationPlan{}, err
		}
		if h != nil {
			plan.DstLeftBy = h.Spec.MigrationID
		}
	case move.DstMade:
	}
	if kind := s.DstKind(); kind.Filesystem || kind.Path && plan.CreatesDestination { // other kinds have an unknown free space
		needed := m.Preflight.NeededBytes(s)
		free, err := m.Preflight.DestinationFreeBytes(ctx, s)
		if err != nil {
			return api.MigrationPlan{}, err
		}
		plan.NeededBytes, plan.FreeBytes = &needed, &free
	}
	if s.Method == move.MethodOverlay {
		free, err := m.Preflight.FreeBytesFor(ctx, m.cfg.OverlayDir, s)
		if err != nil {
			return api.MigrationPlan{}, err
		}
		plan.OverlayDir, plan.OverlayFreeBytes = m.cfg.OverlayDir, &free
	}
	return plan, nil
}

// withoutID replaces the part of the migration's id in dst's name by <id>: the id is different
// when the migration starts.
func withoutID(l api.Location, id string) api.Location {
	name := strings.ReplaceAll(l.Name, id[:8], "<id>")
	l.Path, l.Name = strings.TrimSuffix(l.Path, l.Name)+name, name
	return l
}
