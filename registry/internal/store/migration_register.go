// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/api"
)

// RegisterMigration locks a volume for a migration and reserves its dst: step
// S0, before anything is touched on the host. Where the volume is attached, a
// second attachment of it is reserved at dst.
//
// The id of a migration stands for one migration: registering it again gives
// what is there.
func (s *Store) RegisterMigration(ctx context.Context, call Call, in api.MigrationRegister) (api.Migration, error) {
	if err := checkMigration(in); err != nil {
		return api.Migration{}, err
	}
	return mutate(ctx, s, call, "migration.register", in, func(ctx context.Context, tx *changeTx) (api.Migration, error) {
		if m, err := tx.sameMigration(ctx, in); err != nil || m != nil {
			return deref(m), err
		}
		hostID, err := tx.checkHost(ctx, in.Host, in.Epoch)
		if err != nil {
			return api.Migration{}, err
		}
		v, err := tx.volume(ctx, in.VolumeID)
		if err != nil {
			return api.Migration{}, err
		}
		if err := tx.checkMigratable(ctx, v, hostID, in); err != nil {
			return api.Migration{}, err
		}
		if err := tx.checkDst(ctx, v, in.Dst); err != nil {
			return api.Migration{}, err
		}
		if err := tx.insertMigration(ctx, v, hostID, in); err != nil {
			return api.Migration{}, err
		}
		m, err := migrationByID(ctx, tx, in.ID)
		if err != nil {
			return m, err
		}
		return m, tx.audit(ctx, api.Event{
			What: "migration.register", Host: m.Host, Object: "migration/" + m.ID, To: string(m.State), OpID: in.OpID,
			Details: map[string]any{"volume_id": v.ID, "volume_name": v.Name, "src": m.Src, "dst": m.Dst},
		})
	})
}

func deref(m *api.Migration) api.Migration {
	if m == nil {
		return api.Migration{}
	}
	return *m
}

func checkMigration(in api.MigrationRegister) error {
	if err := cmp.Or(checkID("migration id", in.ID), checkID("volume id", in.VolumeID), checkLocation("destination", in.Dst),
		checkRequired("method", in.Method), checkText("op id", in.OpID)); err != nil {
		return err
	}
	if (in.SrcAttachmentID == "") != (in.DstAttachmentID == "") {
		return invalid("a migration has both attachments, src and dst, or none")
	}
	if in.DstAttachmentID == "" {
		return nil
	}
	return cmp.Or(checkID("src attachment id", in.SrcAttachmentID), checkID("dst attachment id", in.DstAttachmentID))
}

// sameMigration returns the migration that has the id already, nil if there is
// none, and a conflict if it is another one.
func (tx *changeTx) sameMigration(ctx context.Context, in api.MigrationRegister) (*api.Migration, error) {
	m, err := migrationByID(ctx, tx, in.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if m.VolumeID != in.VolumeID || m.SrcAttachmentID != in.SrcAttachmentID || m.DstAttachmentID != in.DstAttachmentID || !open(m.State) {
		return nil, api.Errorf(api.CodeConflict, "the migration id %s is taken by a migration of volume %s", in.ID, m.VolumeName)
	}
	return &m, nil
}

// checkMigratable says whether the volume, as it is now, may be migrated by
// this host as the caller saw it.
func (tx *changeTx) checkMigratable(ctx context.Context, v api.Volume, hostID string, in api.MigrationRegister) error {
	switch {
	case v.MigrationID != "":
		return migrationActive(v, "migrate")
	case v.Generation != in.Generation:
		return api.Errorf(api.CodeStaleGeneration, "cannot migrate volume %s: it is in generation %d and the request is of generation %d; it was moved meanwhile",
			v.Name, v.Generation, in.Generation).With("generation", v.Generation)
	case len(v.Attachments) > 1:
		return api.Errorf(api.CodeMultiattached, "cannot migrate volume %s: it has %d attachments", v.Name, len(v.Attachments)).
			With("attachments", len(v.Attachments))
	case v.Status != api.VolumeAvailable && v.Status != api.VolumeInUse:
		return api.Errorf(api.CodeVolumeNotAvailable, "cannot migrate volume %s: it is %s", v.Name, v.Status).With("status", v.Status)
	}
	if len(v.Attachments) == 0 {
		if in.SrcAttachmentID != "" {
			return api.Errorf(api.CodeConflict, "cannot migrate volume %s at attachment %s: it is not attached any more", v.Name, in.SrcAttachmentID)
		}
		return tx.checkReach(ctx, v, hostID)
	}
	a := v.Attachments[0]
	switch {
	case a.ID != in.SrcAttachmentID:
		return api.Errorf(api.CodeConflict, "cannot migrate volume %s: it is attached by %s", v.Name, a.ID).With("attachment_id", a.ID)
	case a.State != api.AttachmentAttached:
		return api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s: its attachment %s is %s", v.Name, a.ID, a.State)
	}
	var at string
	if err := tx.QueryRowContext(ctx, "SELECT host_id FROM instances WHERE id = ?", a.InstanceID).Scan(&at); err != nil {
		return fmt.Errorf("read host of instance: %w", err)
	}
	if at != hostID {
		return api.Errorf(api.CodeNotYourHost, "cannot migrate volume %s from this host: its instance is on host %s", v.Name, a.Host)
	}
	return nil
}

// checkReach says whether a host has the bytes of a volume that nothing is
// attached to.
func (tx *changeTx) checkReach(ctx context.Context, v api.Volume, hostID string) error {
	var scope, owner string
	if err := tx.QueryRowContext(ctx, `SELECT l.scope, v.host_id FROM volumes v
		JOIN locations l ON l.volume_id = v.id AND l.migration_id IS NULL WHERE v.id = ?`, v.ID).Scan(&scope, &owner); err != nil {
		return fmt.Errorf("read host of volume: %w", err)
	}
	if owner != hostID && scope != scopeShared {
		return api.Errorf(api.CodeNotYourHost, "cannot migrate volume %s from this host: it is on host %s", v.Name, v.Host)
	}
	return nil
}

// checkDst says whether dst is another place of the right size that the
// volume's type allows.
func (tx *changeTx) checkDst(ctx context.Context, v api.Volume, dst api.Location) error {
	src := v.Location
	if src.Path != "" && src.Path == dst.Path || src.Name != "" && src.Pool == dst.Pool && src.Name == dst.Name {
		return api.Errorf(api.CodeSameLocation, "cannot migrate volume %s to %s: it is there", v.Name, place(dst))
	}
	if src.SizeBytes != dst.SizeBytes {
		return api.Errorf(api.CodeSizeMismatch, "cannot migrate volume %s to %s: the volume has %d bytes and the destination %d",
			v.Name, place(dst), src.SizeBytes, dst.SizeBytes).With("size_bytes", src.SizeBytes)
	}
	var typeID string
	if err := tx.QueryRowContext(ctx, "SELECT type_id FROM volumes WHERE id = ?", v.ID).Scan(&typeID); err != nil {
		return fmt.Errorf("read type of volume: %w", err)
	}
	return tx.checkTypeAllows(ctx, typeID, dst)
}

// insertMigration takes the lock and makes the reservations.
func (tx *changeTx) insertMigration(ctx context.Context, v api.Volume, hostID string, in api.MigrationRegister) error {
	src, err := json.Marshal(v.Location)
	if err != nil {
		return fmt.Errorf("encode src: %w", err)
	}
	dst, err := json.Marshal(in.Dst)
	if err != nil {
		return fmt.Errorf("encode dst: %w", err)
	}
	instanceID := ""
	if len(v.Attachments) > 0 {
		instanceID = v.Attachments[0].InstanceID
	}
	if err := tx.exec(ctx, `INSERT INTO migrations (id, volume_id, volume_name, instance_id, host_id, src_attachment_id, dst_attachment_id,
			src, dst, method, to_type_id, state, op_id, started_us)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', 'starting', ?, ?)`,
		in.ID, v.ID, v.Name, instanceID, hostID, in.SrcAttachmentID, in.DstAttachmentID,
		string(src), string(dst), in.Method, in.OpID, tx.at.UnixMicro()); err != nil {
		return err
	}
	if err := tx.claim(ctx, v.ID, in.ID, hostID, in.Dst, api.CodeDstInUse); err != nil {
		return err
	}
	if instanceID == "" {
		return nil
	}
	a := v.Attachments[0]
	return tx.insertAttachment(ctx, attachment{
		id:          in.DstAttachmentID,
		volumeID:    v.ID,
		instanceID:  a.InstanceID,
		device:      a.Device,
		migrationID: in.ID,
		mode:        a.Mode,
		state:       api.AttachmentReserved,
		exclusive:   !v.Multiattach,
	})
}
