// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

type typeTx struct{ *Tx }

// Create makes a volume type.
func (s *Types) Create(ctx context.Context, call Call, in api.VolumeTypeCreate) (api.VolumeType, error) {
	if err := checkType(in.Name, in.Pools); err != nil {
		return api.VolumeType{}, err
	}
	return Mutate(ctx, s.db, call, "type.create", in, func(ctx context.Context, tx *Tx) (api.VolumeType, error) {
		types := typeTx{tx}
		if err := cmp.Or(tx.CheckOperator("make a volume type"), types.checkPoolsKnown(ctx, in.Pools)); err != nil {
			return api.VolumeType{}, err
		}
		id := uuid.NewString()
		_, err := tx.ExecContext(ctx, "INSERT INTO volume_types (id, name, multiattach, created_us) VALUES (?, ?, ?, ?)",
			id, in.Name, in.Multiattach, tx.At.UnixMicro())
		if err != nil {
			return api.VolumeType{}, typeNameTaken(err, in.Name)
		}
		if err := types.setPools(ctx, id, in.Pools); err != nil {
			return api.VolumeType{}, err
		}
		if err := tx.Audit(ctx, api.Event{What: "type.create", Object: "type/" + id, To: in.Name}); err != nil {
			return api.VolumeType{}, err
		}
		return typeByID(ctx, tx, id)
	})
}

// Update changes a volume type. Multiattach cannot change while volumes of the type are
// attached.
func (s *Types) Update(ctx context.Context, call Call, ref string, in api.VolumeTypeUpdate) (api.VolumeType, error) {
	return Mutate(ctx, s.db, call, "type.update", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.VolumeType, error) {
		types := typeTx{tx}
		id, err := Resolve(ctx, tx, KindType, ref)
		if err != nil {
			return api.VolumeType{}, err
		}
		old, err := typeByID(ctx, tx, id)
		if err != nil {
			return api.VolumeType{}, err
		}
		changed := old
		if in.Name != nil {
			changed.Name = *in.Name
		}
		if in.Multiattach != nil {
			changed.Multiattach = *in.Multiattach
		}
		if in.Pools != nil {
			changed.Pools = *in.Pools
		}
		if err := cmp.Or(tx.CheckOperator("change a volume type"), types.checkUpdate(ctx, old, changed)); err != nil {
			return api.VolumeType{}, err
		}
		_, err = tx.ExecContext(ctx, "UPDATE volume_types SET name = ?, multiattach = ? WHERE id = ?", changed.Name, changed.Multiattach, id)
		if err != nil {
			return api.VolumeType{}, typeNameTaken(err, changed.Name)
		}
		if err := types.setPools(ctx, id, changed.Pools); err != nil {
			return api.VolumeType{}, err
		}
		if err := tx.Audit(ctx, api.Event{
			What: "type.update", Object: "type/" + id, From: old.Name, To: changed.Name,
			Details: map[string]any{"multiattach": changed.Multiattach, "pools": changed.Pools},
		}); err != nil {
			return api.VolumeType{}, err
		}
		return typeByID(ctx, tx, id)
	})
}

func (tx typeTx) checkUpdate(ctx context.Context, old, changed api.VolumeType) error {
	if err := checkType(changed.Name, changed.Pools); err != nil {
		return err
	}
	if old.Name == DefaultType && changed.Name != DefaultType {
		return api.Errorf(api.CodeStateForbidden, "cannot rename the volume type %s: volumes without a type have it", DefaultType)
	}
	added := slices.DeleteFunc(slices.Clone(changed.Pools), func(p string) bool { return slices.Contains(old.Pools, p) })
	if err := tx.checkPoolsKnown(ctx, added); err != nil {
		return err
	}
	if old.Multiattach == changed.Multiattach {
		return nil
	}
	return tx.checkMultiattach(ctx, old, changed)
}

// Delete removes a volume type that no volume has, and returns it as it was.
func (s *Types) Delete(ctx context.Context, call Call, ref string) (api.VolumeType, error) {
	return Mutate(ctx, s.db, call, "type.delete", ref, func(ctx context.Context, tx *Tx) (api.VolumeType, error) {
		types := typeTx{tx}
		id, err := Resolve(ctx, tx, KindType, ref)
		if err != nil {
			return api.VolumeType{}, err
		}
		t, err := typeByID(ctx, tx, id)
		if err != nil {
			return api.VolumeType{}, err
		}
		if err := tx.CheckOperator("delete a volume type"); err != nil {
			return api.VolumeType{}, err
		}
		if t.Name == DefaultType {
			return api.VolumeType{}, api.Errorf(api.CodeStateForbidden, "cannot delete the volume type %s: volumes without a type have it", DefaultType)
		}
		var volumes int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM volumes WHERE type_id = ?", id).Scan(&volumes); err != nil {
			return api.VolumeType{}, fmt.Errorf("count volumes of type: %w", err)
		}
		if volumes > 0 {
			return api.VolumeType{}, api.Errorf(api.CodeConflict, "cannot delete the volume type %s: it is that of %s", t.Name, humanize.Count(volumes, "volume"))
		}
		if m, err := types.movedTo(ctx, id); err != nil || m != nil {
			return api.VolumeType{}, cmp.Or(err, migrationToType("delete", t.Name, m))
		}
		if err := tx.Exec(ctx, "DELETE FROM volume_types WHERE id = ?", id); err != nil {
			return api.VolumeType{}, err
		}
		return t, tx.Audit(ctx, api.Event{What: "type.delete", Object: "type/" + id, From: t.Name})
	})
}

func checkType(name string, pools []string) error {
	if err := validate.Name("volume type name", name); err != nil {
		return err
	}
	for i, p := range pools {
		if err := validate.Required("pool name", p); err != nil {
			return err
		}
		if slices.Contains(pools[:i], p) {
			return validate.Invalid("the pool %s is given twice", p)
		}
	}
	return nil
}

func typeNameTaken(err error, name string) error {
	if sqlitedb.Violates(err, "volume_types.name") {
		return api.Errorf(api.CodeConflict, "there is a volume type %s already", name)
	}
	return fmt.Errorf("store volume type: %w", err)
}

func (tx typeTx) setPools(ctx context.Context, id string, pools []string) error {
	if err := tx.Exec(ctx, "DELETE FROM volume_type_pools WHERE type_id = ?", id); err != nil {
		return err
	}
	for _, p := range pools {
		if err := tx.Exec(ctx, "INSERT INTO volume_type_pools (type_id, pool) VALUES (?, ?)", id, p); err != nil {
			return err
		}
	}
	return nil
}

// checkPoolsKnown refuses pools that no host has, such as misspelt names.
func (tx typeTx) checkPoolsKnown(ctx context.Context, pools []string) error {
	if len(pools) == 0 {
		return nil
	}
	known, err := ledger.QueryAll(ctx, tx, ledger.ScanString, "SELECT DISTINCT name FROM pools ORDER BY name")
	if err != nil {
		return err
	}
	for _, p := range pools {
		if slices.Contains(known, p) {
			continue
		}
		there := "; no host has reported a pool yet"
		if len(known) > 0 {
			there = "; there are " + strings.Join(known, ", ")
		}
		return api.Errorf(api.CodeNotFound, "there is no pool %s on any host%s", validate.Quote(p), there).With("pools", known)
	}
	return nil
}

// checkMultiattach refuses a change of multiattach if a volume of the type is attached, is
// being migrated, cannot have the new value, or if a migration gives a volume the type.
func (tx typeTx) checkMultiattach(ctx context.Context, old, changed api.VolumeType) error {
	attached, err := ledger.QueryAll(ctx, tx, ledger.ScanString, `SELECT v.name FROM volumes v
		WHERE v.type_id = ? AND EXISTS (SELECT 1 FROM attachments a WHERE a.volume_id = v.id) ORDER BY v.name LIMIT 1`, old.ID)
	if err != nil {
		return err
	}
	if len(attached) > 0 {
		return api.Errorf(api.CodeInUseRetype, "cannot change multiattach of the volume type %s: its volume %s is attached", old.Name, attached[0])
	}
	if old.Name == DefaultType {
		return api.Errorf(api.CodeStateForbidden, "the volume type %s cannot be multiattach: the disks of adopted instances get it; make another type", DefaultType)
	}
	m, err := tx.movedTo(ctx, old.ID)
	if err != nil {
		return err
	}
	if m != nil {
		return migrationToType("change multiattach of", old.Name, m)
	}
	volumes, err := ledger.QueryAll(ctx, tx, scanVolume, volumeQuery+" WHERE v.type_id = ? ORDER BY v.name", old.ID)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if v.MigrationID != "" {
			return refuseMoving("change multiattach of", v.Name, v.MigrationID)
		}
		if err := tx.checkFits(ctx, changed, v); err != nil {
			return err
		}
	}
	return nil
}

func (tx typeTx) checkFits(ctx context.Context, t api.VolumeType, v api.Volume) error {
	if err := checkTypeSuits(ctx, tx, t, "change the type of volume "+v.Name, v.Location.Format, v.Bootable); err != nil {
		return err
	}
	if !t.Multiattach {
		return nil
	}
	hostID, err := volumeHost(ctx, tx, v)
	if err != nil {
		return err
	}
	return checkPoolCan(ctx, tx, t, hostID, v.Location)
}

func (tx typeTx) movedTo(ctx context.Context, typeID string) (*api.Migration, error) {
	found, err := ledger.QueryAll(ctx, tx, scanMigration, migrationQuery+" WHERE m.to_type_id = ? AND "+MigrationOpen+" LIMIT 1", typeID)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func migrationToType(verb, name string, m *api.Migration) error {
	if m == nil {
		return nil
	}
	return api.Errorf(api.CodeMigrationActive, "cannot %s the volume type %s: migration %s gives it to volume %s; complete or cancel that first", verb, name, m.ID, m.VolumeName).
		With("migration_id", m.ID)
}
