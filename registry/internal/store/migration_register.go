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
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// Register locks a volume for a migration and reserves its dst, before the host changes anything.
// If a host has the volume at an instance, Register also reserves a second attachment at dst. It
// returns an existing migration with this id.
func (s *Migrations) Register(ctx context.Context, call Call, in api.MigrationRegister) (api.Migration, error) {
	if err := checkMigration(in); err != nil {
		return api.Migration{}, err
	}
	return Mutate(ctx, s.db, call, "migration.register", in, func(ctx context.Context, tx *Tx) (api.Migration, error) {
		moves := migrationTx{tx}
		hostID, err := tx.CheckHost(ctx, in.Host, in.Epoch)
		if err != nil {
			return api.Migration{}, err
		}
		if m, found, err := moves.same(ctx, in, hostID); found || err != nil {
			return m, err
		}
		v, err := tx.Volume(ctx, in.VolumeID)
		if err != nil {
			return api.Migration{}, err
		}
		if err := moves.checkMigratable(ctx, v, hostID, in); err != nil {
			return api.Migration{}, err
		}
		t, err := tx.TargetType(ctx, v, in)
		if err != nil {
			return api.Migration{}, err
		}
		if err := tx.checkPoolReported(ctx, hostID, in.Dst); err != nil {
			return api.Migration{}, err
		}
		if err := CheckDst(ctx, tx, v, t, hostID, in.Dst); err != nil {
			return api.Migration{}, err
		}
		if err := tx.InsertMigration(ctx, v, t, hostID, in); err != nil {
			return api.Migration{}, err
		}
		m, err := MigrationByID(ctx, tx, in.ID)
		if err != nil {
			return m, err
		}
		return m, tx.AuditMigration(ctx, m, api.Event{What: "migration.register", To: string(m.State), OpID: in.OpID, Token: &api.Token{Generation: v.Generation}},
			map[string]any{"src": m.Src, "dst": m.Dst, "to_type": in.ToType})
	})
}

func checkMigration(in api.MigrationRegister) error {
	if err := cmp.Or(validate.ID("migration id", in.ID), validate.ID("volume id", in.VolumeID), validate.Location("destination", in.Dst),
		validate.Required("method", in.Method), validate.Text("op id", in.OpID)); err != nil {
		return err
	}
	if (in.SrcAttachmentID == "") != (in.DstAttachmentID == "") {
		return validate.Invalid("a migration has both attachments, src and dst, or none")
	}
	if in.DstAttachmentID == "" {
		return nil
	}
	return cmp.Or(validate.ID("src attachment id", in.SrcAttachmentID), validate.ID("dst attachment id", in.DstAttachmentID))
}

func (tx migrationTx) same(ctx context.Context, in api.MigrationRegister, hostID string) (m api.Migration, found bool, err error) {
	m, err = MigrationByID(ctx, tx, in.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return m, false, nil
	}
	if err != nil {
		return m, false, err
	}
	own, err := owns(ctx, tx, KindMigration, hostID, in.ID)
	if err != nil {
		return m, false, err
	}
	if !own || m.VolumeID != in.VolumeID || m.SrcAttachmentID != in.SrcAttachmentID || m.DstAttachmentID != in.DstAttachmentID || !open(m.State) {
		return m, false, api.Errorf(api.CodeConflict, "the migration id %s is taken by a migration of volume %s", in.ID, m.VolumeName)
	}
	return m, true, nil
}

func (tx migrationTx) checkMigratable(ctx context.Context, v api.Volume, hostID string, in api.MigrationRegister) error {
	switch {
	case v.MigrationID != "":
		return MigrationActive(v, "migrate")
	case v.Generation != in.Generation:
		return staleGeneration("migrate", v.Name, v.Generation, in.Generation)
	case v.Status == api.VolumeResizing:
		return NotAvailable(v, "migrate")
	case in.Dst.Backing != "" && in.Dst.Backing != v.Location.Backing:
		return validate.Invalid("the destination has other base images than volume %s", v.Name)
	case v.Unheld():
		return tx.checkMigratableUnheld(ctx, v, hostID, in)
	case len(v.Attachments) > 1:
		return multiattached(v.Name, len(v.Attachments))
	}
	a := v.Attachments[0]
	switch {
	case a.ID != in.SrcAttachmentID:
		return api.Errorf(api.CodeConflict, "cannot migrate volume %s: it is attached by %s", v.Name, a.ID).With("attachment_id", a.ID)
	case a.State != api.AttachmentAttached:
		return api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s: its attachment %s is %s", v.Name, a.ID, a.State)
	}
	return tx.checkMigratableAt(ctx, v, a, hostID, in.ID)
}

// checkMigratableUnheld is checkMigratable for a volume that no host has at an instance. Its
// attachments follow the volume to its new location.
func (tx migrationTx) checkMigratableUnheld(ctx context.Context, v api.Volume, hostID string, in api.MigrationRegister) error {
	switch {
	case in.SrcAttachmentID != "":
		return api.Errorf(api.CodeConflict, "cannot migrate volume %s at attachment %s: no host has it at an instance any more", v.Name, in.SrcAttachmentID)
	case v.Status != api.VolumeAvailable && len(v.Attachments) == 0:
		return api.Errorf(api.CodeVolumeNotAvailable, "cannot migrate volume %s: it is %s", v.Name, v.Status).With("status", v.Status)
	}
	for _, a := range v.Attachments {
		if err := tx.CheckNoSplitBrain("migrate volume "+v.Name+" of instance "+a.InstanceName, a.InstanceID, ""); err != nil {
			return err
		}
	}
	return tx.checkReach(ctx, "migrate", v, hostID)
}

// checkMigratableAt requires that the volume's instance is on this host, not shelved, not locked by
// another migration, and not running on a second host.
func (tx migrationTx) checkMigratableAt(ctx context.Context, v api.Volume, a api.Attachment, hostID, migrationID string) error {
	var (
		at, name string
		state    api.InstanceState
		lock     instanceLock
	)
	if err := tx.QueryRowContext(ctx, "SELECT host_id, name, state, lock_reason, lock_op FROM instances WHERE id = ?", a.InstanceID).
		Scan(&at, &name, &state, &lock.reason, &lock.op); err != nil {
		return fmt.Errorf("read host of instance: %w", err)
	}
	switch {
	case state == api.InstanceShelved:
		return shelvedOnHost(v.Name, name)
	case at != hostID:
		return api.Errorf(api.CodeNotYourHost, "cannot migrate volume %s from this host: its instance is on host %s", v.Name, a.Host)
	case lock.op != "" && lock.op != migrationID:
		// A move has paused its guest; its other volumes must not move until that ends.
		return lock.check("migrate a volume of", name)
	}
	return tx.CheckNoSplitBrain("migrate volume "+v.Name+" of instance "+name, a.InstanceID, hostID)
}

// TargetType returns the type that dst must satisfy: the new type, checked by the rules of a
// retype, if the migration changes the type, else the volume's type.
func (tx *Tx) TargetType(ctx context.Context, v api.Volume, in api.MigrationRegister) (api.VolumeType, error) {
	t, err := typeByRef(ctx, tx, cmp.Or(in.ToType, v.Type))
	if err != nil || in.ToType == "" {
		return t, err
	}
	return t, checkNewType(ctx, tx, v, t, in.Dst.Format)
}

// CheckDst refuses a dst that is the volume's present location, has another size, or is not allowed
// by the type.
func CheckDst(ctx context.Context, q ledger.Querier, v api.Volume, t api.VolumeType, hostID string, dst api.Location) error {
	src := v.Location
	if src.Path != "" && src.Path == dst.Path || src.Name != "" && src.Pool == dst.Pool && src.Name == dst.Name {
		return api.Errorf(api.CodeSameLocation, "cannot migrate volume %s to %s: it is there", v.Name, Place(dst))
	}
	if src.SizeBytes != dst.SizeBytes {
		return api.Errorf(api.CodeSizeMismatch, "cannot migrate volume %s to %s: the volume has %d bytes and the destination %d",
			v.Name, Place(dst), src.SizeBytes, dst.SizeBytes).With("size_bytes", src.SizeBytes)
	}
	if src.LUKSSecret != dst.LUKSSecret {
		return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s to %s: the volume is a LUKS container or is to become one, and a move keeps what opens it",
			v.Name, Place(dst))
	}
	return checkTypeAllows(ctx, q, t, hostID, dst)
}

// InsertMigration stores a migration, locks the volume, and reserves dst and, if needed, an
// attachment there.
func (tx *Tx) InsertMigration(ctx context.Context, v api.Volume, t api.VolumeType, hostID string, in api.MigrationRegister) error {
	src, err := json.Marshal(v.Location)
	if err != nil {
		return fmt.Errorf("encode src: %w", err)
	}
	dst, err := json.Marshal(in.Dst)
	if err != nil {
		return fmt.Errorf("encode dst: %w", err)
	}
	toType := ""
	if in.ToType != "" {
		toType = t.ID
	}
	instanceID := ""
	if !v.Unheld() {
		instanceID = v.Attachments[0].InstanceID
	}
	if err := tx.Exec(ctx, `INSERT INTO migrations (id, volume_id, volume_name, instance_id, host_id, src_attachment_id, dst_attachment_id,
			src, dst, method, to_type_id, state, op_id, started_us)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'starting', ?, ?)`,
		in.ID, v.ID, v.Name, instanceID, hostID, in.SrcAttachmentID, in.DstAttachmentID,
		string(src), string(dst), in.Method, toType, in.OpID, tx.At.UnixMicro()); err != nil {
		return err
	}
	if err := tx.reserveLocation(ctx, v.ID, in.ID, hostID, in.Dst, api.CodeDstInUse); err != nil {
		return err
	}
	if instanceID == "" {
		return nil
	}
	a := v.Attachments[0]
	a.ID, a.State = in.DstAttachmentID, api.AttachmentReserved
	return tx.insertAttachment(ctx, attachment{Attachment: a, migrationID: in.ID, exclusive: !v.Multiattach, opID: in.OpID})
}
