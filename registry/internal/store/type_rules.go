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
	"github.com/volferry/volferry/registry/internal/validate"
)

// typeAllows says whether volumes of a type may live in the pool; "" is none.
func typeAllows(t api.VolumeType, pool string) bool {
	return len(t.Pools) == 0 || slices.Contains(t.Pools, pool)
}

// checkTypeSuits refuses a volume that is to get a type which it may not have,
// wherever it is: something that is called like "make volume x".
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

// checkCapable refuses a type that no active pool of any host can do multiattach
// for.
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

// checkTypeAllows refuses a place on a host that volumes of the type may not live
// in.
func checkTypeAllows(ctx context.Context, q ledger.Querier, t api.VolumeType, hostID string, l api.Location) error {
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

// poolCan says whether a pool of a host can do multiattach. What is in no pool is
// a file or a device of the host, and can.
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

// checkPoolsKnown refuses pools that no host has: a name that is mistyped would
// be found out when the first volume is made.
func (tx *Tx) checkPoolsKnown(ctx context.Context, pools []string) error {
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

// checkMultiattachUpdate says whether all volumes of a type can have the other
// multiattach. None may be attached or be on the move, and none may be about to
// get the type.
func (tx *Tx) checkMultiattachUpdate(ctx context.Context, old, changed api.VolumeType) error {
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
	m, err := tx.movedToType(ctx, old.ID)
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
		if err := tx.checkTypeFits(ctx, changed, v); err != nil {
			return err
		}
	}
	return nil
}

// checkTypeFits says whether a volume may get a type where it is.
func (tx *Tx) checkTypeFits(ctx context.Context, t api.VolumeType, v api.Volume) error {
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

// movedToType returns an open migration whose volume is to get the type, nil if
// there is none.
func (tx *Tx) movedToType(ctx context.Context, typeID string) (*api.Migration, error) {
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
