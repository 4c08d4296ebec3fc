// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

func (c *Checks) destinationAtAddress(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	path, kind := t.ToPath, medium.Of(t.ToPath)
	if s.LedByRegistry() && !kind.Led {
		return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s: %s is %s, to which no move goes that the registry leads", s.VolumeName, path, kind.Name)
	}
	if kind.Raw && s.Dst.Format != api.FormatRaw {
		return api.Errorf(api.CodeInvalidArgument, "%s is %s, which is raw; say --to-format raw", path, kind.Name)
	}
	if err := c.cfg.Rules.CheckPath(ctx, path); err != nil {
		return err
	}
	if err := checkElsewhere(s, path); err != nil {
		return err
	}
	s.Dst.Path = path
	if err := c.checkNotUsed(ctx, s, path); err != nil {
		return err
	}
	info, err := c.images.Inspect(ctx, s.Dst)
	if err == nil {
		err = c.users.Fence(ctx, path)
	}
	if errors.Is(err, image.ErrAbsent) { // possible only for an RBD image
		s.CreateDst = true
		return nil
	}
	if err != nil {
		return look.HVRefusal(err) // of libvirt, which gives a cluster's key
	}
	if err := takeSize(s, info); err != nil {
		return err
	}
	if s.DstPrint, err = c.images.Fingerprint(ctx, path); err != nil {
		return err
	}
	return c.released.CheckNothingLost(ctx, s, t, info)
}
