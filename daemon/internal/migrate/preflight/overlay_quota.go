// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/quota"
)

const (
	// pausedByAnyError is the error_policy that pauses the guest for any error of the overlay.
	// With other policies QEMU pauses the guest for ENOSPC, but not for EDQUOT.
	pausedByAnyError = "stop"
	notPausedByQuota = "has not the error_policy stop, and its overlay would be under a quota (volferryctl doctor names it)"
)

// overlayQuotas returns the quotas on a migration's overlay in a directory: the quotas of its
// owner while the guest runs, and of the directory's project. s is nil for guests in general.
func (sp *Space) overlayQuotas(ctx context.Context, dir string, s *move.Spec) ([]quota.Limit, error) {
	instanceID := ""
	if s != nil {
		instanceID = s.InstanceID
	}
	owner, _, err := hv.ConfinedUser(ctx, sp.qemuUsers, instanceID)
	if err != nil {
		return nil, err
	}
	if s != nil && !owner.Given && s.SrcRights != nil { // the overlay keeps its first owner
		owner.UID, owner.GID = s.SrcRights.UID, s.SrcRights.GID
	}
	return sp.files.Quotas(ctx, dir, owner)
}

// OverlayFreeBytes returns by how much this host's overlays may grow.
func (sp *Space) OverlayFreeBytes(ctx context.Context) (int64, error) {
	return sp.FreeBytesFor(ctx, sp.cfg.OverlayDir, nil)
}

// FreeBytesFor returns by how much a migration's overlay may grow. If quotas are unknown it
// returns the free space of the filesystem.
func (sp *Space) FreeBytesFor(ctx context.Context, dir string, s *move.Spec) (int64, error) {
	free, err := sp.files.FreeBytes(dir)
	if err != nil {
		return 0, err
	}
	limits, err := sp.overlayQuotas(ctx, dir, s)
	if err != nil {
		return free, nil //nolint:nilerr // the start has logged it, and doctor reports it
	}
	return quota.Free(free, limits), nil
}

// underQuota returns why a disk gets no overlay, or "": QEMU would not pause its guest for an
// exceeded quota.
func (sp *Space) underQuota(ctx context.Context, s *move.Spec, disk *hv.Disk) string {
	if disk.ErrorPolicy == pausedByAnyError {
		return ""
	}
	limits, err := sp.overlayQuotas(ctx, sp.cfg.OverlayDir, s)
	if err != nil {
		sp.log.Warn("cannot see whether overlays are under a quota", "volume", s.VolumeName, "overlay_dir", sp.cfg.OverlayDir, "err", err)
		return ""
	}
	if slices.ContainsFunc(limits, func(l quota.Limit) bool { return !l.AsFull }) {
		return notPausedByQuota
	}
	return ""
}
