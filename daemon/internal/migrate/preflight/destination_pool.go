// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

func (c *Checks) destinationInPool(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	name := t.ToPool
	pools, err := c.pools.Pools(ctx)
	if err != nil {
		return location.NoPools(err)
	}
	pool, err := location.Pool(pools, name)
	if err != nil {
		return err
	}
	files := location.HoldsFiles(pool)
	if !files {
		if err := c.checkOnDevice(ctx, s, t, "pool "+name+" holds block devices"); err != nil {
			return err
		}
	}
	if s.Src.Pool == name && s.Src.Format == s.Dst.Format && s.Src.Backing == s.Dst.Backing { // a linked clone may become a full volume
		if t.KeepBase {
			return api.Errorf(api.CodeSameLocation, "volume %s is in pool %s already; without --keep-base it becomes a volume of its own there", s.VolumeName, name)
		}
		return api.Errorf(api.CodeSameLocation, "volume %s is in pool %s already", s.VolumeName, name)
	}
	s.CreateDst, s.DstBlock = true, !files
	s.Dst.Pool, s.Dst.Name = name, destinationName(s, files)
	s.Dst.Path = filepath.Join(pool.Path, s.Dst.Name)
	if files {
		err = location.CheckPoolPersistent(pool)
	} else {
		err = c.roundUp(ctx, s)
	}
	if err != nil {
		return err
	}
	if files {
		if err := c.chooseAllocation(s, t); err != nil {
			return err
		}
	}
	free, err := location.FreeBytes(pool, c.files.FreeBytes)
	if err != nil {
		return err
	}
	return c.checkDestinationSpace(s, free)
}

// roundUp sets dst to the size that its pool of devices will make. The volume is then the
// beginning of dst, or in a qcow2 image on dst.
func (c *Checks) roundUp(ctx context.Context, s *move.Spec) error {
	rounded, err := c.pools.RoundedBytes(ctx, s.Dst.Pool, s.DstRoomBytes())
	switch {
	case err != nil:
		return request.HV(err)
	case s.DstOnDevice():
		s.DstDeviceBytes = rounded
		return nil
	case rounded == s.SizeBytes():
		return nil
	case s.LedByRegistry():
		return api.Errorf(api.CodeSizeMismatch, "pool %s makes a volume of %s where volume %s has %s, and a move that the registry leads needs a destination of its size to the byte; make the volume larger first with volferryctl volume resize, or choose another pool",
			s.Dst.Pool, humanize.ExactBytes(rounded), s.VolumeName, humanize.ExactBytes(s.SizeBytes())).With("src_size_bytes", s.SizeBytes()).With("dst_size_bytes", rounded)
	}
	s.Dst.ImageBytes = rounded
	return nil
}

// destinationName returns an unused name with the migration's id, so that a person who finds the
// file can look it up.
func destinationName(s *move.Spec, file bool) string {
	name := fmt.Sprintf("%s-%s", s.VolumeName, s.MigrationID[:8])
	if file {
		name += "." + string(s.Dst.Format)
	}
	return name
}

// findPool sets the pool of an existing dst, if an active pool of this host lists dst, as an
// adoption by path does. The pool neither makes nor removes dst. In a move that the registry
// leads, dst stays as reserved, the same on all hosts.
func (c *Checks) findPool(ctx context.Context, s *move.Spec) (err error) {
	if s.LedByRegistry() {
		return nil
	}
	switch s.DstOrigin() {
	case move.DstConnected:
		s.Dst, err = location.InPoolOnceConnected(ctx, c.pools, s.Dst)
	case move.DstExists:
		s.Dst, err = location.InPool(ctx, c.pools, s.Dst)
	case move.DstMade:
	}
	return look.HVRefusal(err)
}
