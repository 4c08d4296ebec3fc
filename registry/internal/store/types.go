// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// DefaultType is the type of volumes created without a type. It always exists and cannot be
// deleted.
const DefaultType = "default"

// Types are the volume types.
type Types struct{ db *DB }

// All returns every volume type, by name.
func (s *Types) All(ctx context.Context) ([]api.VolumeType, error) {
	return ledger.View(ctx, s.db.sqlite.Read, func(q ledger.Querier) ([]api.VolumeType, error) {
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

// Get returns the volume type that ref names.
func (s *Types) Get(ctx context.Context, ref string) (api.VolumeType, error) {
	return ViewOne(ctx, s.db, KindType, ref, typeByID)
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

func typeByRef(ctx context.Context, q ledger.Querier, ref string) (api.VolumeType, error) {
	id, err := Resolve(ctx, q, KindType, ref)
	if err != nil {
		return api.VolumeType{}, err
	}
	return typeByID(ctx, q, id)
}

// typeAllows reports whether the type allows volumes in the pool, or in no pool ("").
func typeAllows(t api.VolumeType, pool string) bool {
	return len(t.Pools) == 0 || slices.Contains(t.Pools, pool)
}

// checkTypeSuits refuses a volume that may not have the type at any location. what describes the
// action, like "make volume x".
func checkTypeSuits(ctx context.Context, q ledger.Querier, t api.VolumeType, what string, format api.Format, bootable bool) error {
	if !t.Multiattach {
		return nil
	}
	if err := checkRaw(t, what, format); err != nil {
		return err
	}
	if err := checkPolicies(ctx, q, what+" of the multiattach type "+t.Name, bootable); err != nil {
		return err
	}
	return checkCapable(ctx, q, t, what)
}

func checkRaw(t api.VolumeType, what string, format api.Format) error {
	if !t.Multiattach || format == api.FormatRaw {
		return nil
	}
	return api.Errorf(api.CodeUnsupportedDisk, "cannot %s: its format is %s, and a volume of the multiattach type %s is raw", what, format, t.Name)
}

// checkCapable refuses a multiattach type if no active pool that it allows, on any host, can do
// multiattach.
func checkCapable(ctx context.Context, q ledger.Querier, t api.VolumeType, what string) error {
	capable, err := ledger.QueryAll(ctx, q, ledger.ScanString, "SELECT DISTINCT name FROM pools WHERE multiattach = 1 AND active = 1")
	if err != nil {
		return err
	}
	for _, pool := range capable {
		if typeAllows(t, pool) {
			return nil
		}
	}
	where := "of any host"
	if len(t.Pools) > 0 {
		where = "of that type (" + strings.Join(t.Pools, ", ") + ")"
	}
	return api.Errorf(api.CodeNoCapablePool, "cannot %s: the type %s is multiattach and no active pool %s can do that", what, t.Name, where)
}

// checkTypeAllows refuses a location on a host that the type does not allow. A path in the
// directory of a pool counts as in that pool.
func checkTypeAllows(ctx context.Context, q ledger.Querier, t api.VolumeType, hostID string, l api.Location) error {
	l, err := inItsPool(ctx, q, hostID, l)
	if err != nil {
		return err
	}
	if !typeAllows(t, l.Pool) {
		return api.Errorf(api.CodePolicyDenied, "a volume of type %s may not be at %s: its type allows the pools %q only", t.Name, Place(l), t.Pools)
	}
	if !t.Multiattach {
		return nil
	}
	if err := checkRaw(t, "have a volume at "+Place(l), l.Format); err != nil {
		return err
	}
	return checkPoolCan(ctx, q, t, hostID, l)
}

func checkPoolCan(ctx context.Context, q ledger.Querier, t api.VolumeType, hostID string, l api.Location) error {
	can, err := poolCan(ctx, q, hostID, l.Pool)
	if err != nil || can {
		return err
	}
	return api.Errorf(api.CodeNoCapablePool, "a volume of the multiattach type %s may not be at %s: the pool %s cannot do multiattach", t.Name, Place(l), l.Pool)
}

// poolCan reports whether the host's pool can do multiattach. A file or device outside of pools
// can.
func poolCan(ctx context.Context, q ledger.Querier, hostID, pool string) (can bool, err error) {
	if pool == "" {
		return true, nil
	}
	err = q.QueryRowContext(ctx, "SELECT multiattach FROM pools WHERE host_id = ? AND name = ?", hostID, pool).Scan(&can)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("look up pool: %w", err)
	}
	return can, nil
}

func checkNewType(ctx context.Context, q ledger.Querier, v api.Volume, t api.VolumeType, format api.Format) error {
	if v.Multiattach != t.Multiattach && len(v.Attachments) > 0 {
		return api.Errorf(api.CodeInUseRetype, "cannot retype volume %s to %s: that changes multiattach, and the volume is attached", v.Name, t.Name)
	}
	if v.Type == t.Name {
		return nil
	}
	return checkTypeSuits(ctx, q, t, "give volume "+v.Name+" another type", format, v.Bootable)
}

// volumeHost returns the id of the host that changes the volume: the host of its instance, or else
// the host in the volume's row.
func volumeHost(ctx context.Context, q ledger.Querier, v api.Volume) (id string, err error) {
	if len(v.Attachments) > 0 && v.Attachments[0].Host != "" {
		err = q.QueryRowContext(ctx, "SELECT host_id FROM instances WHERE id = ?", v.Attachments[0].InstanceID).Scan(&id)
	} else {
		err = q.QueryRowContext(ctx, "SELECT host_id FROM volumes WHERE id = ?", v.ID).Scan(&id)
	}
	if err != nil {
		return "", fmt.Errorf("read host of volume: %w", err)
	}
	return id, nil
}
