// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
)

// CheckFilesystems refuses directories on a filesystem that cannot hold the move's images, or
// store their writes. It tries each directory with a file that it removes. disk is the disk that
// moves, nil if there is not exactly one.
func (c *Checks) CheckFilesystems(ctx context.Context, s *move.Spec, disk *hv.Disk) error {
	user, confined, err := hv.ConfinedUser(ctx, c.processes, s.InstanceID)
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return request.NoHypervisor(err)
	case err != nil:
		return err
	case !confined:
		user = hv.ProcessUser{}
	}
	direct := disk != nil && disk.PastPageCache()
	if s.Overlay != "" {
		needs := image.Needs{FileBytes: move.Qcow2FileBytes(s.SizeBytes()), Named: true, Direct: direct, Kept: true}
		if err := c.tryDirectory(s, user, s.Overlay, needs); err != nil {
			return err
		}
	}
	if !s.DstKind().Filesystem {
		return nil
	}
	needs := image.Needs{FileBytes: s.DstFileBytes(), Named: s.CreateDst && s.Dst.Pool == "", Direct: direct}
	if !s.CreateDst {
		user = hv.ProcessUser{} // an existing file has its own rights
	}
	return c.tryDirectory(s, user, s.Dst.Path, needs)
}

func (c *Checks) tryDirectory(s *move.Spec, user hv.ProcessUser, path string, needs image.Needs) error {
	dir := location.Directory(path)
	return image.Refused("migrate volume "+s.VolumeName, filepath.Clean(dir), c.dirs.TryDirectory(user, dir, needs))
}
