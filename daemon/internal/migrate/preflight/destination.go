// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// ResolveDestination sets dst in the spec. It refuses a location that is not free.
func (c *Checks) ResolveDestination(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	s.Dst = api.Location{Format: s.Src.Format, SizeBytes: s.SizeBytes(), LUKSSecret: s.Src.LUKSSecret}
	if t.ToFormat != "" {
		s.Dst.Format = t.ToFormat
	}
	if t.KeepBase {
		s.Dst.Backing = s.Src.Backing
	}
	find := c.destinationAtPath
	switch {
	case t.ToPool != "":
		find = c.destinationInPool
	case !medium.Of(t.ToPath).Path:
		find = c.destinationAtAddress
	}
	if err := find(ctx, s, t); err != nil {
		return err
	}
	if err := checkAllocation(s, t); err != nil {
		return err
	}
	if err := c.findPool(ctx, s); err != nil {
		return err
	}
	if err := checkContainer(s); err != nil || !t.KeepBase {
		return err
	}
	return c.checkKeepBase(ctx, s)
}

func (c *Checks) checkKeepBase(ctx context.Context, s *move.Spec) error {
	switch {
	case !s.Src.IsLinkedClone():
		return api.Errorf(api.CodeInvalidArgument, "volume %s is no linked clone: it has no base images to keep; leave out --keep-base", s.VolumeName)
	case !s.DstKind().Filesystem:
		return api.Errorf(api.CodeInvalidArgument, "--keep-base makes a qcow2 file, and %s is none; name a file or a pool of files, or leave out --keep-base", s.Dst.Path)
	case !s.CreateDst:
		return api.Errorf(api.CodeInvalidArgument, "%s exists already, and would hide what is in the base images; with --keep-base the destination is made by the move: name a file that is not there", s.Dst.Path)
	case s.Method == move.MethodMirror:
		return OnlyMirrored(s, "copies what is in the base images as well; leave out --keep-base, or stop the instance and run this again")
	case s.Method == move.MethodOverlay:
		return c.look.MayCopyBehind(ctx, s)
	}
	return nil
}

// checkContainer refuses a dst that cannot be a byte-for-byte copy of a LUKS container.
func checkContainer(s *move.Spec) error {
	switch {
	case !s.Src.IsLUKS():
	case s.Dst.Format != api.FormatRaw || s.DstKind().Raw:
		return api.Errorf(api.CodeInvalidArgument, "volume %s is encrypted by QEMU (LUKS), and such a volume moves only to a raw file or device", s.VolumeName)
	case s.Dst.IsSlice():
		return move.SizeMismatch(s.Src.Path, s.SizeBytes(), s.Dst.Path, s.Dst.ImageBytes)
	}
	return nil
}
