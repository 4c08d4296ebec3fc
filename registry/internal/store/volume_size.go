// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/registry/internal/validate"
)

// SeenImage has the properties of a volume's image that a host has reported.
type SeenImage struct {
	Host string
	api.VolumeImage
}

const sizeVerb = "set the size of"

// CheckSetSize refuses to set the size of a volume, for reasons that are known before a host is
// asked.
func CheckSetSize(v api.Volume, in api.VolumeSize) error {
	if err := validate.Evidence("evidence", in.Evidence); err != nil {
		return err
	}
	switch {
	case v.MigrationID != "":
		return MigrationActive(v, sizeVerb)
	case v.Status != api.VolumeAvailable && v.Status != api.VolumeReserved && v.Status != api.VolumeInUse:
		return NotAvailable(v, sizeVerb)
	case v.Location.IsSlice():
		return api.Errorf(api.CodeStateForbidden, "cannot set the size of volume %s: it is the beginning of what is at %s, whose size says nothing of it", v.Name, v.Location.Path)
	}
	return nil
}

// SetSize stores the size that an operator gives a volume, even a smaller one. The host must have
// seen exactly this size, and the volume must not have changed since the caller read it as asked.
func (s *Volumes) SetSize(ctx context.Context, call Call, asked api.Volume, in api.VolumeSize, seen SeenImage) (api.Volume, error) {
	return Mutate(ctx, s.db, call, "volume.set_size", []any{asked.ID, in}, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		resize := resizeTx{tx}
		if err := tx.CheckOperator("set the size of a volume"); err != nil {
			return api.Volume{}, err
		}
		v, err := volumeByID(ctx, tx, asked.ID)
		if err != nil {
			return v, err
		}
		if err := CheckSetSize(v, in); err != nil {
			return v, err
		}
		switch {
		case v.Generation != asked.Generation || v.Location != asked.Location || seen.Path != v.Location.Path:
			return v, api.Errorf(api.CodeConflict, "volume %s has changed while host %s looked at its image; ask again", v.Name, seen.Host)
		case seen.SizeBytes != in.SizeBytes:
			return v, api.Errorf(api.CodeSizeMismatch, "cannot set the size of volume %s to %s: host %s reports that its image %s has %s", v.Name, humanize.ExactBytes(in.SizeBytes), seen.Host, v.Location.Path, humanize.ExactBytes(seen.SizeBytes)).
				With("size_bytes", v.SizeBytes).With("found_bytes", seen.SizeBytes)
		case v.SizeBytes == in.SizeBytes:
			return v, nil
		}
		if err := resize.setSize(ctx, v, in.SizeBytes); err != nil {
			return v, err
		}
		if err := tx.auditVolume(ctx, v, api.Event{What: "volume.set_size", From: fmt.Sprint(v.SizeBytes), To: fmt.Sprint(in.SizeBytes)},
			map[string]any{"evidence": in.Evidence, "seen_by": seen.Host}); err != nil {
			return v, err
		}
		return volumeByID(ctx, tx, v.ID)
	})
}
