// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// checkOnDevice refuses a qcow2 image on a block device unless requested, and records the size
// that the device needs. The refusal begins with where, as in "pool p holds block devices".
func (c *Checks) checkOnDevice(ctx context.Context, s *move.Spec, t api.MigrationTarget, where string) (err error) {
	switch {
	case s.Dst.Format == api.FormatRaw:
		return nil
	case s.LedByRegistry():
		return api.Errorf(api.CodeInvalidArgument, "%s, on which a move that the registry leads makes only raw images; say --to-format raw", where)
	case t.ToFormat == "" && s.SrcKind().Filesystem:
		return api.Errorf(api.CodeInvalidArgument, "%s, and volume %s is in a %s file; say --to-format raw, or --to-format %[3]s for a %[3]s image on a device", where, s.VolumeName, s.Dst.Format)
	}
	s.DstDeviceBytes, err = c.images.FullBytes(ctx, s.SizeBytes())
	return err
}

// destinationOnDevice makes an existing block device, whatever its content, the device of a qcow2
// dst.
func (c *Checks) destinationOnDevice(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	path := s.Dst.Path
	if err := c.checkOnDevice(ctx, s, t, path+" is a block device"); err != nil {
		return err
	}
	info, err := c.images.Inspect(ctx, api.Location{Path: path, Format: api.FormatRaw})
	if err != nil {
		return err
	}
	if info.SizeBytes < s.DstDeviceBytes {
		return image.TooSmallForQcow2(path, info.SizeBytes, s.SizeBytes(), s.DstDeviceBytes)
	}
	if err := c.identifyOverwritten(ctx, s, t); err != nil {
		return err
	}
	return c.released.CheckNothingLost(ctx, s, t, info)
}

// destinationToConnect sets a target's volume as dst. Its size is unknown until it is connected,
// and must then equal the volume's.
func (c *Checks) destinationToConnect(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	if s.LedByRegistry() {
		return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s: %s is a volume of a target, to which no move goes that the registry leads", s.VolumeName, s.Dst.Path)
	}
	if err := c.checkOnDevice(ctx, s, t, s.Dst.Path+" is a block device"); err != nil {
		return err
	}
	s.CreateDst, s.ConnectDst, s.DstBlock = true, true, true
	info, err := c.images.Inspect(ctx, api.Location{Path: s.Dst.Path, Format: api.FormatRaw})
	switch {
	case errors.Is(err, image.ErrAbsent):
	case err != nil:
		return err
	case s.DstOnDevice() && info.SizeBytes < s.DstDeviceBytes:
		return image.TooSmallForQcow2(s.Dst.Path, info.SizeBytes, s.SizeBytes(), s.DstDeviceBytes)
	case s.DstOnDevice():
	default:
		if err := takeSize(s, info); err != nil {
			return err
		}
	}
	return c.released.CheckNothingLost(ctx, s, t, image.Info{SizeBytes: s.DstRoomBytes(), Block: true})
}

// IsAway reports whether a destination that a connector will connect has no image at its path yet.
func (c *Checks) IsAway(ctx context.Context, path string) (bool, error) {
	_, err := c.images.Inspect(ctx, api.Location{Path: path, Format: api.FormatRaw})
	if errors.Is(err, image.ErrAbsent) {
		return true, nil
	}
	return false, err
}
