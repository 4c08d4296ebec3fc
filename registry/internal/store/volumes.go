// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
)

// volumeNext are the statuses that a host may ask for, by the one before.
// Reserved and in-use are not among them: they follow from attachments alone.
var volumeNext = map[api.VolumeStatus][]api.VolumeStatus{
	api.VolumeCreating:  {api.VolumeAvailable, api.VolumeError, api.VolumeDeleting},
	api.VolumeAvailable: {api.VolumeDeleting, api.VolumeError},
	api.VolumeReserved:  {},
	api.VolumeInUse:     {},
	api.VolumeDeleting:  {api.VolumeAvailable, api.VolumeError},
	api.VolumeError:     {api.VolumeAvailable, api.VolumeDeleting},
}

// RegisterVolume records a volume that a host makes or has found. Its place
// must be nobody else's.
func (s *Store) RegisterVolume(ctx context.Context, call Call, in api.VolumeRegister) (api.Volume, error) {
	if err := cmp.Or(checkID("volume id", in.ID), checkName("volume name", in.Name), checkLocation("volume", in.Location)); err != nil {
		return api.Volume{}, err
	}
	if in.Status != api.VolumeCreating && in.Status != api.VolumeAvailable {
		return api.Volume{}, invalid("a volume begins as creating or available, not as %s", quote(string(in.Status)))
	}
	return mutate(ctx, s, call, "volume.register", in, func(ctx context.Context, tx *changeTx) (api.Volume, error) {
		hostID, err := resolve(ctx, tx, kindHost, in.Host)
		if err != nil {
			return api.Volume{}, err
		}
		if err := tx.insertVolume(ctx, in, hostID, in.Status); err != nil {
			return api.Volume{}, err
		}
		v, err := volumeByID(ctx, tx, in.ID)
		if err != nil {
			return v, err
		}
		return v, tx.audit(ctx, api.Event{
			What: "volume.register", Host: v.Host, Object: "volume/" + v.ID, To: string(v.Status),
			Details: map[string]any{"name": v.Name, "location": v.Location},
		})
	})
}

// insertVolume makes the row of a volume and claims its place.
func (tx *changeTx) insertVolume(ctx context.Context, in api.VolumeRegister, hostID string, status api.VolumeStatus) error {
	typeID, err := resolve(ctx, tx, kindType, cmp.Or(in.Type, DefaultType))
	if err != nil {
		return err
	}
	if err := tx.checkTypeAllows(ctx, typeID, in.Location); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO volumes (id, name, status, type_id, bootable, generation, host_id, created_us, updated_us)
		VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?7)`, in.ID, in.Name, status, typeID, in.Bootable, hostID, tx.at.UnixMicro())
	if err != nil {
		return volumeTaken(err, in.ID, in.Name)
	}
	return tx.claim(ctx, in.ID, "", hostID, in.Location, api.CodeConflict)
}

// volumeTaken says in plain words why a volume cannot have its id or name.
func volumeTaken(err error, id, name string) error {
	switch {
	case sqlitedb.Violates(err, "volumes.id"):
		return api.Errorf(api.CodeConflict, "there is a volume with the id %s already", id)
	case sqlitedb.Violates(err, "volumes.name"):
		return api.Errorf(api.CodeConflict, "there is a volume %s already; choose another name, or give that one another with `volferryctl volume set`", name)
	}
	return fmt.Errorf("store volume: %w", err)
}

// UpdateVolume changes what a volume is called and whether it boots. Neither
// touches its bytes, so a migration is no hindrance.
func (s *Store) UpdateVolume(ctx context.Context, call Call, ref string, in api.VolumeUpdate) (api.Volume, error) {
	if in.Name != nil {
		if err := checkName("volume name", *in.Name); err != nil {
			return api.Volume{}, err
		}
	}
	return mutate(ctx, s, call, "volume.update", []any{ref, in}, func(ctx context.Context, tx *changeTx) (api.Volume, error) {
		old, err := tx.volume(ctx, ref)
		if err != nil {
			return old, err
		}
		name, bootable := old.Name, old.Bootable
		if in.Name != nil {
			name = *in.Name
		}
		if in.Bootable != nil {
			bootable = *in.Bootable
		}
		if _, err := tx.ExecContext(ctx, "UPDATE volumes SET name = ?, bootable = ?, updated_us = ? WHERE id = ?",
			name, bootable, tx.at.UnixMicro(), old.ID); err != nil {
			return api.Volume{}, volumeTaken(err, old.ID, name)
		}
		if err := tx.audit(ctx, api.Event{
			What: "volume.update", Host: old.Host, Object: "volume/" + old.ID, From: old.Name, To: name,
			Details: map[string]any{"bootable": bootable},
		}); err != nil {
			return api.Volume{}, err
		}
		return volumeByID(ctx, tx, old.ID)
	})
}

// TransitionVolume moves a volume to another status, if it is still in the one
// that the caller saw.
func (s *Store) TransitionVolume(ctx context.Context, call Call, ref string, in api.VolumeTransition) (api.Volume, error) {
	if in.Location != nil {
		if err := checkLocation("volume", *in.Location); err != nil {
			return api.Volume{}, err
		}
	}
	return mutate(ctx, s, call, "volume.transition", []any{ref, in}, func(ctx context.Context, tx *changeTx) (api.Volume, error) {
		v, err := tx.volume(ctx, ref)
		if err != nil {
			return v, err
		}
		next, known := volumeNext[in.From]
		switch {
		case !known || !slices.Contains(next, in.To):
			return v, invalid("a volume cannot be moved from %s to %s", quote(string(in.From)), quote(string(in.To)))
		case v.MigrationID != "":
			return v, migrationActive(v, "change the status of")
		case v.Status != in.From:
			return v, api.Errorf(api.CodeConflict, "volume %s is %s, no longer %s", v.Name, v.Status, in.From).With("status", v.Status)
		}
		if in.Location != nil {
			if err := tx.relocate(ctx, v, *in.Location); err != nil {
				return v, err
			}
		}
		if err := tx.exec(ctx, "UPDATE volumes SET status = ?, updated_us = ? WHERE id = ?", in.To, tx.at.UnixMicro(), v.ID); err != nil {
			return v, err
		}
		if err := tx.audit(ctx, api.Event{What: "volume.transition", Host: v.Host, Object: "volume/" + v.ID, From: string(in.From), To: string(in.To)}); err != nil {
			return v, err
		}
		return volumeByID(ctx, tx, v.ID)
	})
}

// relocate settles the place of a volume that is being made: its path may be
// known only now.
func (tx *changeTx) relocate(ctx context.Context, v api.Volume, l api.Location) error {
	if v.Status != api.VolumeCreating {
		return api.Errorf(api.CodeStateForbidden, "volume %s is %s; only a migration changes where it is", v.Name, v.Status)
	}
	var hostID string
	if err := tx.QueryRowContext(ctx, "SELECT host_id FROM volumes WHERE id = ?", v.ID).Scan(&hostID); err != nil {
		return fmt.Errorf("read host of volume: %w", err)
	}
	if err := tx.exec(ctx, "DELETE FROM locations WHERE volume_id = ?", v.ID); err != nil {
		return err
	}
	return tx.claim(ctx, v.ID, "", hostID, l, api.CodeConflict)
}

// ForgetVolume forgets a volume whose bytes are gone or are no longer
// Volferry's, and returns what it was.
func (s *Store) ForgetVolume(ctx context.Context, call Call, ref string) (api.Volume, error) {
	return mutate(ctx, s, call, "volume.delete", ref, func(ctx context.Context, tx *changeTx) (api.Volume, error) {
		v, err := tx.volume(ctx, ref)
		if err != nil {
			return v, err
		}
		switch {
		case v.MigrationID != "":
			return v, migrationActive(v, "delete")
		case len(v.Attachments) > 0:
			return v, api.Errorf(api.CodeVolumeInUse, "cannot delete volume %s: it is attached to instance %s", v.Name, v.Attachments[0].InstanceID)
		case v.Status == api.VolumeReserved:
			return v, api.Errorf(api.CodeVolumeNotAvailable, "cannot delete volume %s: it is reserved", v.Name)
		}
		if err := tx.exec(ctx, "DELETE FROM volumes WHERE id = ?", v.ID); err != nil {
			return v, err
		}
		return v, tx.audit(ctx, api.Event{
			What: "volume.delete", Host: v.Host, Object: "volume/" + v.ID, From: string(v.Status),
			Details: map[string]any{"name": v.Name, "location": v.Location},
		})
	})
}

func migrationActive(v api.Volume, verb string) error {
	return api.Errorf(api.CodeMigrationActive, "cannot %s volume %s: migration %s is moving it; complete or cancel that first", verb, v.Name, v.MigrationID).
		With("migration_id", v.MigrationID)
}
