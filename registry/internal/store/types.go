// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// DefaultType is the volume type of volumes that name none. It is there from
// the start and stays.
const DefaultType = "default"

// CreateType makes a volume type.
func (s *Store) CreateType(ctx context.Context, call Call, in api.VolumeTypeCreate) (api.VolumeType, error) {
	if err := checkType(in.Name, in.Pools); err != nil {
		return api.VolumeType{}, err
	}
	return Mutate(ctx, s, call, "type.create", in, func(ctx context.Context, tx *Tx) (api.VolumeType, error) {
		if err := cmp.Or(tx.CheckOperator("make a volume type"), tx.checkPoolsKnown(ctx, in.Pools)); err != nil {
			return api.VolumeType{}, err
		}
		id := uuid.NewString()
		_, err := tx.ExecContext(ctx, "INSERT INTO volume_types (id, name, multiattach, created_us) VALUES (?, ?, ?, ?)",
			id, in.Name, in.Multiattach, tx.At.UnixMicro())
		if err != nil {
			return api.VolumeType{}, typeNameTaken(err, in.Name)
		}
		if err := tx.setTypePools(ctx, id, in.Pools); err != nil {
			return api.VolumeType{}, err
		}
		if err := tx.Audit(ctx, api.Event{What: "type.create", Object: "type/" + id, To: in.Name}); err != nil {
			return api.VolumeType{}, err
		}
		return typeByID(ctx, tx, id)
	})
}

// UpdateType changes a volume type. Multiattach does not change under volumes
// that are attached, whichever way.
func (s *Store) UpdateType(ctx context.Context, call Call, ref string, in api.VolumeTypeUpdate) (api.VolumeType, error) {
	return Mutate(ctx, s, call, "type.update", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.VolumeType, error) {
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
		if err := cmp.Or(tx.CheckOperator("change a volume type"), tx.checkTypeUpdate(ctx, old, changed)); err != nil {
			return api.VolumeType{}, err
		}
		_, err = tx.ExecContext(ctx, "UPDATE volume_types SET name = ?, multiattach = ? WHERE id = ?", changed.Name, changed.Multiattach, id)
		if err != nil {
			return api.VolumeType{}, typeNameTaken(err, changed.Name)
		}
		if err := tx.setTypePools(ctx, id, changed.Pools); err != nil {
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

func (tx *Tx) checkTypeUpdate(ctx context.Context, old, changed api.VolumeType) error {
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
	return tx.checkMultiattachUpdate(ctx, old, changed)
}

// DeleteType removes a volume type that no volume has, and returns what it was.
func (s *Store) DeleteType(ctx context.Context, call Call, ref string) (api.VolumeType, error) {
	return Mutate(ctx, s, call, "type.delete", ref, func(ctx context.Context, tx *Tx) (api.VolumeType, error) {
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
			return api.VolumeType{}, api.Errorf(api.CodeConflict, "cannot delete the volume type %s: it is that of %s", t.Name, api.Count(volumes, "volume"))
		}
		if m, err := tx.movedToType(ctx, id); err != nil || m != nil {
			return api.VolumeType{}, cmp.Or(err, migrationToType("delete", t.Name, m))
		}
		if err := tx.Exec(ctx, "DELETE FROM volume_types WHERE id = ?", id); err != nil {
			return api.VolumeType{}, err
		}
		return t, tx.Audit(ctx, api.Event{What: "type.delete", Object: "type/" + id, From: t.Name})
	})
}

// Types returns every volume type, by name.
func (s *Store) Types(ctx context.Context) ([]api.VolumeType, error) {
	return ledger.View(ctx, s.db.Read, func(q ledger.Querier) ([]api.VolumeType, error) {
		ids, err := ledger.QueryAll(ctx, q, ledger.ScanString, "SELECT id FROM volume_types ORDER BY name")
		if err != nil {
			return nil, err
		}
		types := make([]api.VolumeType, 0, len(ids))
		for _, id := range ids {
			t, err := typeByID(ctx, q, id)
			if err != nil {
				return nil, err
			}
			types = append(types, t)
		}
		return types, nil
	})
}

// Type returns the volume type that ref names.
func (s *Store) Type(ctx context.Context, ref string) (api.VolumeType, error) {
	return ViewOne(ctx, s, KindType, ref, typeByID)
}

func typeByID(ctx context.Context, q ledger.Querier, id string) (api.VolumeType, error) {
	var (
		t       = api.VolumeType{ID: id}
		created int64
	)
	if err := q.QueryRowContext(ctx, "SELECT name, multiattach, created_us FROM volume_types WHERE id = ?", id).
		Scan(&t.Name, &t.Multiattach, &created); err != nil {
		return t, fmt.Errorf("read volume type %s: %w", id, err)
	}
	t.CreatedAt = ledger.FromMicros(created)
	var err error
	t.Pools, err = ledger.QueryAll(ctx, q, ledger.ScanString, "SELECT pool FROM volume_type_pools WHERE type_id = ? ORDER BY pool", id)
	return t, err
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

func (tx *Tx) setTypePools(ctx context.Context, id string, pools []string) error {
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
