// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// GrowVolume takes over the size of a volume whose image has grown, by the word of a
// host that has looked, and returns the volume. No volume gets smaller: what is missing
// of one that did is somebody's data. One that moves keeps its size until that is over,
// because its destination has been made for it.
func (s *Store) GrowVolume(ctx context.Context, call Call, ref string, in api.VolumeGrow) (api.Volume, error) {
	return Mutate(ctx, s, call, "volume.grow", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		v, err := tx.OwnVolume(ctx, ref, "change the size of")
		if err != nil {
			return v, err
		}
		switch {
		case v.SizeBytes == in.SizeBytes:
			return v, nil
		case v.SizeBytes != in.FromBytes:
			return v, api.Errorf(api.CodeConflict, "volume %s has %s, no longer %s", v.Name, api.ExactBytes(v.SizeBytes), api.ExactBytes(in.FromBytes))
		case in.SizeBytes < v.SizeBytes:
			return v, validate.Invalid("volume %s has %s, and %s is less: a volume is only grown", v.Name, api.ExactBytes(v.SizeBytes), api.ExactBytes(in.SizeBytes))
		case v.MigrationID != "":
			return v, MigrationActive(v, "change the size of")
		case v.Status != api.VolumeAvailable && v.Status != api.VolumeInUse:
			return v, NotAvailable(v, "change the size of")
		}
		if err := tx.setSize(ctx, v, in.SizeBytes); err != nil {
			return v, err
		}
		if err := tx.auditVolume(ctx, v, api.Event{What: "volume.grow", From: fmt.Sprint(v.SizeBytes), To: fmt.Sprint(in.SizeBytes)}, nil); err != nil {
			return v, err
		}
		return volumeByID(ctx, tx, v.ID)
	})
}

// setSize takes over the size of an image.
func (tx *Tx) setSize(ctx context.Context, v api.Volume, sizeBytes int64) error {
	grown := v.Location
	grown.SizeBytes = sizeBytes
	if err := validate.Location("volume", grown); err != nil {
		return err
	}
	return tx.ExecAll(ctx,
		ledger.SQL("UPDATE locations SET size_bytes = ? WHERE volume_id = ? AND migration_id IS NULL", sizeBytes, v.ID),
		ledger.SQL("UPDATE volumes SET size_changed_us = ?1, updated_us = ?1 WHERE id = ?2", tx.At.UnixMicro(), v.ID))
}
