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
	// pausedByAnyError is the error_policy that pauses the guest for any error of the overlay. With
	// the others QEMU pauses it only for ENOSPC, not for EDQUOT.
	pausedByAnyError = "stop"
	// notPausedByQuota is the reason why a disk with another policy gets no overlay under a quota.
	notPausedByQuota = "has not the error_policy stop, and its overlay would be under a quota (volferryctl doctor names it)"
)

// overlayQuotas returns the quotas on the overlay of a migration in a directory: the quotas of its
// owner while the guest runs, and of the directory's project. s is nil for guests in general.
func (c *Checks) overlayQuotas(ctx context.Context, dir string, s *move.Spec) ([]quota.Limit, error) {
	instanceID := ""
	if s != nil {
		instanceID = s.InstanceID
	}
	owner, _, err := hv.ConfinedUser(ctx, c.hv, instanceID)
	if err != nil {
		return nil, err
	}
	if s != nil && !owner.Given && s.SrcRights != nil { // the overlay keeps the owner from its creation
		owner.UID, owner.GID = s.SrcRights.UID, s.SrcRights.GID
	}
	return c.images.Quotas(ctx, dir, owner)
}

// OverlayFreeBytes returns by how much the overlays of this host may still grow.
func (c *Checks) OverlayFreeBytes(ctx context.Context) (int64, error) {
	return c.FreeBytesFor(ctx, c.cfg.OverlayDir, nil)
}

// FreeBytesFor returns by how much the overlay of a migration may still grow. If the quotas are
// unknown, the free space of the filesystem counts.
func (c *Checks) FreeBytesFor(ctx context.Context, dir string, s *move.Spec) (int64, error) {
	free, err := c.images.FreeBytes(dir)
	if err != nil {
		return 0, err
	}
	limits, err := c.overlayQuotas(ctx, dir, s)
	if err != nil {
		return free, nil //nolint:nilerr // the start has logged it, and doctor reports it
	}
	return quota.Free(free, limits), nil
}

// underQuota returns the reason why a disk gets no overlay if QEMU would not pause its guest for an
// exceeded quota, "" if it gets one.
func (c *Checks) underQuota(ctx context.Context, s *move.Spec, disk *hv.Disk) string {
	if disk.ErrorPolicy == pausedByAnyError {
		return ""
	}
	limits, err := c.overlayQuotas(ctx, c.cfg.OverlayDir, s)
	if err != nil {
		c.log.Warn("cannot see whether overlays are under a quota", "volume", s.VolumeName, "overlay_dir", c.cfg.OverlayDir, "err", err)
		return ""
	}
	if slices.ContainsFunc(limits, func(l quota.Limit) bool { return !l.AsFull }) {
		return notPausedByQuota
	}
	return ""
}
