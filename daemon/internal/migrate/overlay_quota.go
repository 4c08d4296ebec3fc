// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/quota"
)

const (
	// pausedByAnyError is the error_policy with which any error of the overlay pauses the guest.
	// With the others QEMU pauses it for ENOSPC alone, and not for EDQUOT.
	pausedByAnyError = "stop"
	// notPausedByQuota is the reason why another disk gets no overlay where that would be under a
	// quota.
	notPausedByQuota = "has not the error_policy stop, and its overlay would be under a quota (volferryctl doctor names it)"
)

// overlayQuotas returns the quotas that the overlay of a migration counts against in a directory:
// those of the user that it belongs to while its guest runs, and of the directory's project. S is
// nil for guests in general.
func (m *Manager) overlayQuotas(ctx context.Context, dir string, s *steps.Spec) ([]quota.Limit, error) {
	instanceID := ""
	if s != nil {
		instanceID = s.InstanceID
	}
	owner, _, err := hv.ConfinedUser(ctx, m.ports.HV, instanceID)
	if err != nil {
		return nil, err
	}
	if s != nil && !owner.Given && s.SrcRights != nil { // it keeps the owner that it is made with
		owner.UID, owner.GID = s.SrcRights.UID, s.SrcRights.GID
	}
	return m.ports.Images.Quotas(ctx, dir, owner)
}

// OverlayFreeBytes returns how much the overlays of this host may grow still.
func (m *Manager) OverlayFreeBytes(ctx context.Context) (int64, error) {
	return m.overlayFreeBytes(ctx, m.cfg.OverlayDir, nil)
}

// overlayFreeBytes is how much the overlay of a migration may grow still. Where nobody can say
// which quotas there are, what the filesystem has counts.
func (m *Manager) overlayFreeBytes(ctx context.Context, dir string, s *steps.Spec) (int64, error) {
	free, err := m.ports.Images.FreeBytes(dir)
	if err != nil {
		return 0, err
	}
	limits, err := m.overlayQuotas(ctx, dir, s)
	if err != nil {
		return free, nil //nolint:nilerr // the start has logged it, and doctor says it
	}
	return quota.Free(free, limits), nil
}

// underQuota returns the reason why a disk gets no overlay if QEMU would not pause its guest for a
// quota that is used up, "" if it gets one.
func (m *Manager) underQuota(ctx context.Context, s *steps.Spec, disk *hv.Disk) string {
	if disk.ErrorPolicy == pausedByAnyError {
		return ""
	}
	limits, err := m.overlayQuotas(ctx, m.cfg.OverlayDir, s)
	if err != nil {
		m.log.Warn("cannot see whether overlays are under a quota", "volume", s.VolumeName, "overlay_dir", m.cfg.OverlayDir, "err", err)
		return ""
	}
	if slices.ContainsFunc(limits, func(l quota.Limit) bool { return !l.AsFull }) {
		return notPausedByQuota
	}
	return ""
}
