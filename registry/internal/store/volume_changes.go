// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/validate"
)

// volumeNext has the statuses that a host may request after each status. Reserved and in-use
// depend on attachments alone. BeginResize and EndResize set resizing.
var volumeNext = map[api.VolumeStatus][]api.VolumeStatus{
	api.VolumeCreating:  {api.VolumeAvailable, api.VolumeError, api.VolumeDeleting},
	api.VolumeAvailable: {api.VolumeDeleting, api.VolumeError},
	api.VolumeReserved:  {},
	api.VolumeInUse:     {},
	api.VolumeDeleting:  {api.VolumeAvailable, api.VolumeError},
	api.VolumeError:     {api.VolumeAvailable, api.VolumeDeleting},
	api.VolumeResizing:  {},
}

// Register records a volume that a host is about to make or has found. No other volume may have
// its location.
func (s *Volumes) Register(ctx context.Context, call Call, in api.VolumeRegister) (api.Volume, error) {
	if err := cmp.Or(validate.ID("volume id", in.ID), validate.Name("volume name", in.Name), validate.Location("volume", in.Location)); err != nil {
		return api.Volume{}, err
	}
	if in.Status != api.VolumeCreating && in.Status != api.VolumeAvailable {
		return api.Volume{}, validate.Invalid("a volume begins as creating or available, not as %s", validate.Quote(string(in.Status)))
	}
	return Mutate(ctx, s.db, call, "volume.register", in, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		row := volumeTx{tx}
		hostID, err := tx.checkSelf(ctx, in.Host)
		if err != nil {
			return api.Volume{}, err
		}
		if err := tx.checkPoolReported(ctx, hostID, in.Location); err != nil {
			return api.Volume{}, err
		}
		if err := row.insert(ctx, in, hostID, in.Status); err != nil {
			return api.Volume{}, err
		}
		v, err := volumeByID(ctx, tx, in.ID)
		if err != nil {
			return v, err
		}
		return v, tx.auditVolume(ctx, v, api.Event{What: "volume.register", To: string(v.Status)}, map[string]any{"location": v.Location, "type": v.Type})
	})
}

func (tx volumeTx) insert(ctx context.Context, in api.VolumeRegister, hostID string, status api.VolumeStatus) error {
	t, err := typeByRef(ctx, tx, cmp.Or(in.Type, DefaultType))
	if err != nil {
		return err
	}
	if err := checkTypeSuits(ctx, tx, t, "make volume "+in.Name, in.Location.Format, in.Bootable); err != nil {
		return err
	}
	if err := checkTypeAllows(ctx, tx, t, hostID, in.Location); err != nil {
		return err
	}
	adopted := ""
	if status == api.VolumeAvailable { // a volume that Volferry makes is creating first
		adopted = in.Location.Path
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO volumes (id, name, status, type_id, bootable, generation, host_id, created_us, updated_us, adopted_path)
		VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?7, ?8)`, in.ID, in.Name, status, t.ID, in.Bootable, hostID, tx.At.UnixMicro(), adopted)
	if err != nil {
		return volumeTaken(err, in.ID, in.Name)
	}
	return tx.reserveLocation(ctx, in.ID, "", hostID, in.Location, api.CodeConflict)
}

func volumeTaken(err error, id, name string) error {
	switch {
	case sqlitedb.Violates(err, "volumes.id"):
		return api.Errorf(api.CodeConflict, "there is a volume with the id %s already", id)
	case sqlitedb.Violates(err, "volumes.name"):
		return api.Errorf(api.CodeConflict, "there is a volume %s already (`%s`); choose another name, or give that one another: `%s`", name, shell.Line("volferryctl", "volume", "show", name), shell.Line("volferryctl", "volume", "set", name, "--name", "NAME"))
	}
	return fmt.Errorf("store volume: %w", err)
}

// Update changes the name of a volume and whether it is bootable, also during a migration. For an
// operator it also stores the identity of the volume's device, unless the volume is being
// migrated.
func (s *Volumes) Update(ctx context.Context, call Call, ref string, in api.VolumeUpdate) (api.Volume, error) {
	if in.Name != nil {
		if err := validate.Name("volume name", *in.Name); err != nil {
			return api.Volume{}, err
		}
	}
	if in.Identity != nil {
		if err := validate.Identity("identity", *in.Identity); err != nil {
			return api.Volume{}, err
		}
	}
	return Mutate(ctx, s.db, call, "volume.update", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		row := volumeTx{tx}
		old, err := careTx{tx}.inCare(ctx, ref, "change")
		if err != nil {
			return old, err
		}
		if in.Identity != nil && *in.Identity != old.Location.Identity {
			if old, err = row.setIdentity(ctx, old, *in.Identity); err != nil {
				return old, err
			}
		}
		name, bootable := old.Name, old.Bootable
		if in.Name != nil {
			name = *in.Name
		}
		if in.Bootable != nil {
			bootable = *in.Bootable
		}
		if bootable && !old.Bootable {
			if err := row.checkBootable(ctx, old); err != nil {
				return old, err
			}
		}
		if _, err := tx.ExecContext(ctx, "UPDATE volumes SET name = ?, bootable = ?, updated_us = ? WHERE id = ?",
			name, bootable, tx.At.UnixMicro(), old.ID); err != nil {
			return api.Volume{}, volumeTaken(err, old.ID, name)
		}
		if err := tx.auditVolume(ctx, old, api.Event{What: "volume.update", From: old.Name, To: name}, map[string]any{"bootable": bootable}); err != nil {
			return api.Volume{}, err
		}
		return volumeByID(ctx, tx, old.ID)
	})
}

// checkBootable refuses a volume that is, or will be, multiattach if the policy
// multiattach_bootable is off.
func (tx volumeTx) checkBootable(ctx context.Context, v api.Volume) error {
	multiattach := v.Multiattach
	if v.MigrationID != "" {
		if err := tx.QueryRowContext(ctx, "SELECT ?1 OR EXISTS (SELECT 1 FROM volume_types t JOIN migrations m ON m.to_type_id = t.id WHERE m.id = ?2 AND t.multiattach = 1)",
			multiattach, v.MigrationID).Scan(&multiattach); err != nil {
			return fmt.Errorf("look up type of migration: %w", err)
		}
	}
	if !multiattach {
		return nil
	}
	return checkPolicy(ctx, tx, "make the multiattach volume "+v.Name+" bootable", api.PolicyMultiattachBootable)
}

// Transition changes the status of a volume if its present status is in.From.
func (s *Volumes) Transition(ctx context.Context, call Call, ref string, in api.VolumeTransition) (api.Volume, error) {
	if in.Location != nil {
		if err := validate.Location("volume", *in.Location); err != nil {
			return api.Volume{}, err
		}
	}
	return Mutate(ctx, s.db, call, "volume.transition", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		row := volumeTx{tx}
		v, err := careTx{tx}.inCare(ctx, ref, "change the status of")
		if err != nil {
			return v, err
		}
		next, known := volumeNext[in.From]
		switch {
		case !known || !slices.Contains(next, in.To):
			return v, validate.Invalid("a volume cannot be moved from %s to %s", validate.Quote(string(in.From)), validate.Quote(string(in.To)))
		case v.MigrationID != "":
			return v, MigrationActive(v, "change the status of")
		case v.Status != in.From:
			return v, api.Errorf(api.CodeConflict, "volume %s is %s, no longer %s", v.Name, v.Status, in.From).With("status", v.Status)
		}
		if in.To == api.VolumeDeleting {
			if err := tx.CheckNotBehind(ctx, "delete", v.Name, v.Location, tx.callerID()); err != nil {
				return v, err
			}
		}
		if in.Location != nil {
			if err := row.settleLocation(ctx, v, *in.Location); err != nil {
				return v, err
			}
		}
		if err := tx.Exec(ctx, "UPDATE volumes SET status = ?, updated_us = ? WHERE id = ?", in.To, tx.At.UnixMicro(), v.ID); err != nil {
			return v, err
		}
		if err := tx.auditVolume(ctx, v, api.Event{What: "volume.transition", From: string(in.From), To: string(in.To)}, nil); err != nil {
			return v, err
		}
		return volumeByID(ctx, tx, v.ID)
	})
}

func (tx volumeTx) settleLocation(ctx context.Context, v api.Volume, l api.Location) error {
	if v.Status != api.VolumeCreating {
		return api.Errorf(api.CodeStateForbidden, "volume %s is %s; only a migration changes where it is", v.Name, v.Status)
	}
	var hostID string
	if err := tx.QueryRowContext(ctx, "SELECT host_id FROM volumes WHERE id = ?", v.ID).Scan(&hostID); err != nil {
		return fmt.Errorf("read host of volume: %w", err)
	}
	if err := tx.Exec(ctx, "DELETE FROM locations WHERE volume_id = ?", v.ID); err != nil {
		return err
	}
	return tx.reserveLocation(ctx, v.ID, "", hostID, l, api.CodeConflict)
}

// Forget removes a volume and returns it as it was. Its bytes must be deleted, or no longer
// managed by Volferry.
func (s *Volumes) Forget(ctx context.Context, call Call, ref string) (api.Volume, error) {
	return Mutate(ctx, s.db, call, "volume.forget", ref, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		v, err := careTx{tx}.inCare(ctx, ref, "forget")
		if err != nil {
			return v, err
		}
		if v.MigrationID != "" {
			return v, MigrationActive(v, "forget")
		}
		if v.Status == api.VolumeResizing {
			return v, NotAvailable(v, "forget")
		}
		if len(v.Attachments) > 0 {
			return v, volumeTx{tx}.refuseAttached(ctx, v)
		}
		if err := tx.Exec(ctx, "DELETE FROM volumes WHERE id = ?", v.ID); err != nil {
			return v, err
		}
		return v, tx.auditVolume(ctx, v, api.Event{What: "volume.forget", From: string(v.Status)}, map[string]any{"location": v.Location})
	})
}

func (tx volumeTx) refuseAttached(ctx context.Context, v api.Volume) error {
	a := v.Attachments[0]
	var instance string
	if err := tx.QueryRowContext(ctx, "SELECT name FROM instances WHERE id = ?", a.InstanceID).Scan(&instance); err != nil {
		return fmt.Errorf("read name of instance: %w", err)
	}
	return api.Errorf(api.CodeVolumeInUse, "cannot forget volume %s: it is attached to instance %s as %s (%s); detach it first", v.Name, instance, a.Device, a.State).
		With("instance_id", a.InstanceID).With("attachment_id", a.ID)
}
