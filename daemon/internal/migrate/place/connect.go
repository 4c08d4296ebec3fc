// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
)

// connectDestination connects dst, a target's volume, to a device of this host. Only then its size
// and users are known. The note of dst comes first, so that the undo always disconnects dst.
func (e *Env) connectDestination(ctx context.Context, r *op.Run, s *move.Spec) error {
	note := move.DstNote{Ours: true}
	if err := r.Note(ctx, note); err != nil {
		return err
	}
	if err := location.Connect(ctx, e.devices, s.Dst.Path, "cannot migrate volume "+s.VolumeName); err != nil {
		return e.move.HVError(err)
	}
	// The pool of dst was determined before dst had a device, or not at all.
	if err := location.CheckPool(ctx, e.pools, s.Dst, "cannot migrate volume "+s.VolumeName); err != nil {
		return e.move.HVError(err)
	}
	if err := e.look.CheckFree(ctx, s.Dst.Path, location.Self{MigrationID: s.MigrationID}); err != nil {
		return e.move.HVError(e.move.RegistryError(err))
	}
	if s.DstOnDevice() {
		return e.noteMade(ctx, r, s, note) // its size is checked when the image is made on it
	}
	info, err := e.images.Inspect(ctx, s.Dst)
	if err != nil {
		return err
	}
	if s.Dst.VolumeBytes(info.SizeBytes) != s.SizeBytes() {
		return move.SizeMismatch(s.Src.Path, s.SizeBytes(), s.Dst.Path, info.SizeBytes)
	}
	return e.noteMade(ctx, r, s, note)
}

func (e *Env) disconnectDestination(ctx context.Context, s *move.Spec) error {
	if err := e.dstLeft(ctx, s); err != nil {
		return err
	}
	return location.Disconnect(ctx, e.devices, s.Dst.Path)
}

func (e *Env) disconnectSource(ctx context.Context, s *move.Spec) error {
	connectable, err := location.Connectable(ctx, e.devices, s.Src.Path)
	if err != nil || !connectable {
		return e.move.HVError(err)
	}
	if err := e.look.NotNamed(ctx, s.Src.Path); err != nil {
		e.log.Warn("src is left connected: it is in use", "migration", s.MigrationID, "path", s.Src.Path, "err", err)
		return nil
	}
	return location.Disconnect(ctx, e.devices, s.Src.Path)
}
