// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

type volumeTx struct{ *Tx }

// Identify stores the identity of a volume's device as a host has read it, and returns the volume.
// It refuses another identity than the stored one, because the path may now name another device;
// an operator may change it (Update).
func (s *Volumes) Identify(ctx context.Context, call Call, ref string, in api.VolumeIdentify) (api.Volume, error) {
	if err := cmp.Or(validate.Required("path", in.Path), validate.Identity("identity", in.Identity)); err != nil {
		return api.Volume{}, err
	}
	if in.Identity == "" {
		return api.Volume{}, validate.Invalid("the identity is missing")
	}
	return Mutate(ctx, s.db, call, "volume.identify", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		v, err := careTx{tx}.seen(ctx, ref, "store the identity of", func(v api.Volume) string {
			return shell.Line("volferryctl", "volume", "set", v.Name, "--identity", in.Identity)
		})
		if err != nil {
			return v, err
		}
		switch has := v.Location.Identity; {
		case v.Location.Path != in.Path:
			return v, api.Errorf(api.CodeConflict, "volume %s is at %s, and not at %s", v.Name, Place(v.Location), in.Path)
		case has == in.Identity:
			return v, nil
		case has != "":
			return v, api.Errorf(api.CodeConflict, "the device of volume %s is %s, and not %s", v.Name, has, in.Identity)
		}
		return volumeTx{tx}.setIdentity(ctx, v, in.Identity)
	})
}

func (tx volumeTx) setIdentity(ctx context.Context, v api.Volume, identity string) (api.Volume, error) {
	if v.MigrationID != "" {
		return v, MigrationActive(v, "change the identity of")
	}
	if err := tx.ExecAll(ctx,
		ledger.SQL("UPDATE locations SET identity = ? WHERE volume_id = ? AND migration_id IS NULL", identity, v.ID),
		ledger.SQL("UPDATE volumes SET updated_us = ? WHERE id = ?", tx.At.UnixMicro(), v.ID)); err != nil {
		return v, err
	}
	if err := tx.auditVolume(ctx, v, api.Event{What: "volume.identify", From: v.Location.Identity, To: identity}, nil); err != nil {
		return v, err
	}
	return volumeByID(ctx, tx, v.ID)
}
