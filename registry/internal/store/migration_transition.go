// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// Transition changes the state of a migration if its present state is in in.From. Completed makes
// dst the volume's location and frees src; cancelled and error free dst; all three unlock the
// volume. Once the host has announced completing, cancelled and error need NotSwitched: the host
// states that the volume was not switched to dst.
func (s *Migrations) Transition(ctx context.Context, call Call, ref string, in api.MigrationTransition) (api.Migration, error) {
	if err := checkTransition(in); err != nil {
		return api.Migration{}, err
	}
	in.Error = validate.ReportedError(in.Error)
	return Mutate(ctx, s.db, call, "migration.transition", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Migration, error) {
		moves := migrationTx{tx}
		id, err := Resolve(ctx, tx, KindMigration, ref)
		if err != nil {
			return api.Migration{}, err
		}
		m, err := MigrationByID(ctx, tx, id)
		if err != nil {
			return m, err
		}
		if err := moves.checkOwner(ctx, m, in); err != nil {
			return m, err
		}
		if m.LedByRegistry() {
			return m, api.Errorf(api.CodeStateForbidden, "migration %s of volume %s is the registry's: no host moves it", m.ID, m.VolumeName)
		}
		if done, err := moves.checkState(ctx, m, in); done || err != nil {
			return m, err
		}
		if in.Dst != nil {
			if err := tx.MoveReservation(ctx, m, *in.Dst); err != nil {
				return m, err
			}
		}
		if err := moves.storeState(ctx, m, in); err != nil {
			return m, err
		}
		if err := tx.AuditMigration(ctx, m, api.Event{What: "migration.transition", From: string(m.State), To: string(in.To), OpID: in.OpID}, nil); err != nil {
			return m, err
		}
		return MigrationByID(ctx, tx, id)
	})
}

func checkTransition(in api.MigrationTransition) error {
	if in.Dst != nil {
		if err := validate.Location("destination", *in.Dst); err != nil {
			return err
		}
	}
	if len(in.From) == 0 {
		return validate.Invalid("the states that the migration may be in are missing")
	}
	switch in.To {
	case api.MigrationStarted, api.MigrationCopying, api.MigrationCopied, api.MigrationCompleting, api.MigrationCompleted,
		api.MigrationCancelling, api.MigrationCancelled, api.MigrationError, api.MigrationNeedsOperator:
		return cmp.Or(validate.Text("op id", in.OpID), validate.Error("error of the migration", in.Error))
	case api.MigrationStarting, api.MigrationOrphaned:
	}
	return validate.Invalid("a migration cannot be moved to %s", validate.Quote(string(in.To)))
}

func (tx migrationTx) checkOwner(ctx context.Context, m api.Migration, in api.MigrationTransition) error {
	hostID, err := tx.CheckHost(ctx, in.Host, in.Epoch)
	if err != nil {
		return err
	}
	var owner string
	if err := tx.QueryRowContext(ctx, "SELECT host_id FROM migrations WHERE id = ?", m.ID).Scan(&owner); err != nil {
		return fmt.Errorf("read host of migration: %w", err)
	}
	if owner != hostID {
		return api.Errorf(api.CodeNotYourHost, "migration %s of volume %s is host %s's", m.ID, m.VolumeName, m.Host)
	}
	return nil
}

// checkState refuses a transition that the present state does not allow. done means that the same
// op has already made the transition.
func (tx migrationTx) checkState(ctx context.Context, m api.Migration, in api.MigrationTransition) (done bool, err error) {
	var op string
	if err := tx.QueryRowContext(ctx, "SELECT op_id FROM migrations WHERE id = ?", m.ID).Scan(&op); err != nil {
		return false, fmt.Errorf("read op of migration: %w", err)
	}
	switch {
	case m.State == in.To && op == in.OpID && op != "":
		return true, nil
	case !open(m.State):
		return false, api.Errorf(api.CodeNoMigration, "migration %s of volume %s is over: it is %s", m.ID, m.VolumeName, m.State).With("state", m.State)
	case !slices.Contains(in.From, m.State):
		return false, api.Errorf(api.CodeConflict, "migration %s of volume %s is %s, none of %q", m.ID, m.VolumeName, m.State, in.From).With("state", m.State)
	case in.To == api.MigrationCompleted && m.State != api.MigrationCompleting && m.State != api.MigrationNeedsOperator:
		// The registry frees src only after the host has announced completing.
		return false, api.Errorf(api.CodeStateForbidden, "migration %s of volume %s is %s and cannot become %s from there", m.ID, m.VolumeName, m.State, in.To)
	case dropsDst(in.To) && mayBeSwitched(m) && !in.NotSwitched:
		return false, api.Errorf(api.CodeStateForbidden, "migration %s of volume %s is %s: %s may be the only good copy, and is not dropped unless its host says that it was not switched to", m.ID, m.VolumeName, m.State, Place(m.Dst))
	}
	return false, nil
}

func dropsDst(to api.MigrationState) bool {
	return to == api.MigrationCancelled || to == api.MigrationError
}

// mayBeSwitched reports whether the volume may already be at dst. Once the host has announced
// completing, only the host knows.
func mayBeSwitched(m api.Migration) bool {
	return m.State == api.MigrationCompleting || m.State == api.MigrationNeedsOperator
}

func (tx migrationTx) storeState(ctx context.Context, m api.Migration, in api.MigrationTransition) error {
	var fail, finished any
	if in.Error != nil {
		b, err := json.Marshal(in.Error)
		if err != nil {
			return fmt.Errorf("encode error: %w", err)
		}
		fail = string(b)
	}
	if !open(in.To) {
		finished = tx.At.UnixMicro()
	}
	if err := tx.Exec(ctx, "UPDATE migrations SET state = ?, orphaned_from = NULL, op_id = ?, error = ?, finished_us = ? WHERE id = ?",
		in.To, in.OpID, fail, finished, m.ID); err != nil {
		return err
	}
	switch in.To {
	case api.MigrationCompleted:
		return tx.Flip(ctx, m)
	case api.MigrationCancelled, api.MigrationError:
		return tx.ReleaseDst(ctx, m)
	default:
		return nil
	}
}

// Flip makes dst the volume's location, the dst attachment its attachment, and a retype's new type
// its type. The registry then no longer knows src.
func (tx *Tx) Flip(ctx context.Context, m api.Migration) error {
	return tx.ExecAll(ctx,
		ledger.SQL("DELETE FROM attachments WHERE id = ?", m.SrcAttachmentID),
		ledger.SQL("UPDATE attachments SET migration_id = NULL, state = 'attached', updated_us = ? WHERE migration_id = ?", tx.At.UnixMicro(), m.ID),
		ledger.SQL("DELETE FROM locations WHERE volume_id = ? AND migration_id IS NULL", m.VolumeID),
		ledger.SQL("UPDATE locations SET migration_id = NULL WHERE migration_id = ?", m.ID),
		ledger.SQL(`UPDATE volumes SET generation = generation + 1, updated_us = ?1, host_id = m.host_id,
				type_id = CASE m.to_type_id WHEN '' THEN volumes.type_id ELSE m.to_type_id END
			FROM migrations m WHERE m.id = ?2 AND volumes.id = m.volume_id`, tx.At.UnixMicro(), m.ID),
	)
}

// ReleaseDst frees dst; src does not change.
func (tx *Tx) ReleaseDst(ctx context.Context, m api.Migration) error {
	return tx.ExecAll(ctx,
		ledger.SQL("DELETE FROM attachments WHERE migration_id = ?", m.ID),
		ledger.SQL("DELETE FROM locations WHERE migration_id = ?", m.ID),
	)
}

// MoveReservation replaces the reserved dst by the location that the host has made.
func (tx *Tx) MoveReservation(ctx context.Context, m api.Migration, dst api.Location) error {
	v, err := volumeByID(ctx, tx, m.VolumeID)
	if err != nil {
		return err
	}
	var hostID, typeID string
	if err := tx.QueryRowContext(ctx, `SELECT m.host_id, CASE m.to_type_id WHEN '' THEN v.type_id ELSE m.to_type_id END
		FROM migrations m JOIN volumes v ON v.id = m.volume_id WHERE m.id = ?`, m.ID).Scan(&hostID, &typeID); err != nil {
		return fmt.Errorf("read host and type of migration: %w", err)
	}
	t, err := typeByID(ctx, tx, typeID)
	if err != nil {
		return err
	}
	if err := CheckDst(ctx, tx, v, t, hostID, dst); err != nil {
		return err
	}
	if err := tx.Exec(ctx, "DELETE FROM locations WHERE migration_id = ?", m.ID); err != nil {
		return err
	}
	if err := tx.reserveLocation(ctx, m.VolumeID, m.ID, hostID, dst, api.CodeDstInUse); err != nil {
		return err
	}
	b, err := json.Marshal(dst)
	if err != nil {
		return fmt.Errorf("encode dst: %w", err)
	}
	return tx.Exec(ctx, "UPDATE migrations SET dst = ? WHERE id = ?", string(b), m.ID)
}
