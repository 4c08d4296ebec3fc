// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

func (c *Checks) destinationAtPath(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	path := t.ToPath
	if st, err := location.Stat(path); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return api.Errorf(api.CodeInvalidArgument, "%s is a directory; name the file that is to be made in it, for example --to-path %s",
			path, filepath.Join(path, s.VolumeName+"."+string(s.Dst.Format)))
	}
	if err := checkElsewhere(s, path); err != nil {
		return err
	}
	if err := c.cfg.Rules.CheckPath(ctx, path); err != nil {
		return err
	}
	s.Dst.Path = path
	if err := c.checkNotUsed(ctx, s, path); err != nil {
		return err
	}
	connectable, err := location.Connectable(ctx, c.devices, path)
	switch {
	case err != nil:
		return look.HVRefusal(err)
	case connectable:
		return c.destinationToConnect(ctx, s, t)
	}
	info, err := c.images.Inspect(ctx, api.Location{Path: path, Format: s.Dst.Format})
	s.DstBlock = info.Block
	if s.DstKind().Filesystem {
		// Mistyped devices would be files in /dev, which are lost at reboot.
		if err := location.CheckPersistent(path); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, image.ErrAbsent):
		return c.destinationToCreate(s, t)
	case info.Block && s.Dst.Format != api.FormatRaw:
		return c.destinationOnDevice(ctx, s, t)
	case err != nil:
		return err
	}
	return c.destinationToOverwrite(ctx, s, t, info)
}

func (c *Checks) destinationToCreate(s *move.Spec, t api.MigrationTarget) error {
	dir := filepath.Dir(s.Dst.Path)
	free, err := c.files.FreeBytes(dir)
	if err != nil {
		return api.Errorf(api.CodeInvalidArgument, "cannot create %s: the directory %s does not exist, or volferryd cannot see it", s.Dst.Path, dir)
	}
	s.CreateDst = true
	if err := c.chooseAllocation(s, t); err != nil {
		return err
	}
	return c.checkDestinationSpace(s, free)
}

func (c *Checks) destinationToOverwrite(ctx context.Context, s *move.Spec, t api.MigrationTarget, info image.Info) error {
	if err := c.identifyOverwritten(ctx, s, t); err != nil {
		return err
	}
	if err := c.checkDstNotLocked(ctx, s.Dst.Path); err != nil {
		return err
	}
	if err := takeSize(s, info); err != nil {
		return err
	}
	if err := c.released.CheckNothingLost(ctx, s, t, info); err != nil || !s.DstKind().Filesystem {
		return err
	}
	free, err := c.files.FreeBytes(filepath.Dir(s.Dst.Path))
	if err != nil {
		return err
	}
	return c.checkDestinationSpace(s, free+info.AllocatedBytes)
}
