// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// checkElsewhere refuses the volume's present path, under any name, as dst.
func checkElsewhere(s *move.Spec, path string) error {
	same, overlaps, err := location.PlaceOf(path).Meets(s.Src.Path)
	switch {
	case err != nil:
		return look.UserUnknown(path, err)
	case same:
		return api.Errorf(api.CodeSameLocation, "volume %s is at %s already", s.VolumeName, s.Src.Path)
	case overlaps:
		return api.Errorf(api.CodeSameLocation, "volume %s is at %s, and %s shares bytes with that: one is a part of the other, or both are names of one device", s.VolumeName, s.Src.Path, path)
	}
	return nil
}

func (c *Checks) checkNotUsed(ctx context.Context, s *move.Spec, path string) error {
	return look.HVRefusal(c.look.CheckFree(ctx, path, location.Self{MigrationID: s.MigrationID}))
}

// identifyOverwritten records the fingerprint of the image that will be overwritten. It refuses an
// earlier move's released source that was written since.
func (c *Checks) identifyOverwritten(ctx context.Context, s *move.Spec, t api.MigrationTarget) (err error) {
	if s.DstPrint, err = c.images.Fingerprint(ctx, s.Dst.Path); err != nil {
		return err
	}
	return c.released.CheckNotWritten(ctx, s, t)
}

// takeSize makes the volume the beginning of a larger raw dst, and refuses any other dst of
// another size. A move that the registry leads needs the exact size.
func takeSize(s *move.Spec, info image.Info) error {
	switch {
	case info.SizeBytes == s.SizeBytes():
		return nil
	case info.SizeBytes < s.SizeBytes() || s.Dst.Format != api.FormatRaw || s.LedByRegistry():
		return move.SizeMismatch(s.Src.Path, s.SizeBytes(), s.Dst.Path, info.SizeBytes)
	}
	if err := checkAligned(s, info); err != nil {
		return err
	}
	s.Dst.ImageBytes = info.SizeBytes
	return nil
}

// checkAligned refuses a larger file as dst if QEMU may be unable to write a file of its size.
func checkAligned(s *move.Spec, info image.Info) error {
	if !s.DstKind().Filesystem || info.SizeBytes%image.MaxAlignBytes == 0 {
		return nil
	}
	return api.Errorf(api.CodeSizeMismatch, "destination %s has %d bytes, which is no multiple of %d, and QEMU may refuse to write to it; make it larger or smaller with truncate, or name another destination",
		s.Dst.Path, info.SizeBytes, image.MaxAlignBytes).With("dst_size_bytes", info.SizeBytes)
}
