// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// RetypePlan says what has to be done to give a volume another type.
type RetypePlan struct {
	// InPlace says that the volume may stay where it is, and RetypeVolume can do it.
	// Otherwise it has to be migrated to ToPool, with the type.
	InPlace bool
	Volume  api.Volume
	ToPool  string
}

// PlanRetype returns what has to be done for a retype, or refuses it for every reason that
// is known now.
func (s *Store) PlanRetype(ctx context.Context, ref string, in api.VolumeRetype) (RetypePlan, error) {
	if err := checkRetype(in); err != nil {
		return RetypePlan{}, err
	}
	return ledger.View(ctx, s.db.Read, func(q ledger.Querier) (RetypePlan, error) {
		id, err := Resolve(ctx, q, KindVolume, ref)
		if err != nil {
			return RetypePlan{}, err
		}
		v, err := volumeByID(ctx, q, id)
		if err != nil {
			return RetypePlan{}, err
		}
		t, err := typeByRef(ctx, q, in.Type)
		if err != nil {
			return RetypePlan{}, err
		}
		return s.planRetype(ctx, q, v, t, in.MigrationPolicy)
	})
}

// RetypeVolume gives a volume another type without moving it. A retype that has to move the
// volume is refused: with conflict if the caller allows the move, which is a migration
// then, and with policy_denied if not.
func (s *Store) RetypeVolume(ctx context.Context, call Call, ref string, in api.VolumeRetype) (api.Volume, error) {
	if err := checkRetype(in); err != nil {
		return api.Volume{}, err
	}
	return Mutate(ctx, s, call, "volume.retype", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		v, err := tx.volumeInCare(ctx, ref, "retype")
		if err != nil {
			return v, err
		}
		t, err := typeByRef(ctx, tx, in.Type)
		if err != nil {
			return v, err
		}
		plan, err := s.planRetype(ctx, tx, v, t, in.MigrationPolicy)
		switch {
		case err != nil:
			return v, err
		case !plan.InPlace:
			return v, api.Errorf(api.CodeConflict, "cannot retype volume %s where it is: %s is no place for type %s; migrate it to pool %s with that type", v.Name, Place(v.Location), t.Name, plan.ToPool).
				With("to_pool", plan.ToPool)
		case v.Type == t.Name:
			return v, nil
		}
		if err := tx.Exec(ctx, "UPDATE volumes SET type_id = ?, updated_us = ? WHERE id = ?", t.ID, tx.At.UnixMicro(), v.ID); err != nil {
			return v, err
		}
		if err := tx.auditVolume(ctx, v, api.Event{What: "volume.retype", From: v.Type, To: t.Name}, nil); err != nil {
			return v, err
		}
		return volumeByID(ctx, tx, v.ID)
	})
}

func checkRetype(in api.VolumeRetype) error {
	if in.Type == "" {
		return validate.Invalid("the new type is missing")
	}
	switch in.MigrationPolicy {
	case "", api.RetypeNever, api.RetypeOnDemand:
		return nil
	}
	return validate.Invalid("the migration policy %s is not one of never and on-demand", validate.Quote(in.MigrationPolicy))
}

// planRetype decides whether a volume gets a type where it is or elsewhere.
func (s *Store) planRetype(ctx context.Context, q ledger.Querier, v api.Volume, t api.VolumeType, policy string) (RetypePlan, error) {
	plan := RetypePlan{Volume: v}
	switch {
	case v.MigrationID != "":
		return plan, MigrationActive(v, "retype")
	case v.Status != api.VolumeAvailable && v.Status != api.VolumeReserved && v.Status != api.VolumeInUse:
		return plan, api.Errorf(api.CodeVolumeNotAvailable, "cannot retype volume %s: it is %s", v.Name, v.Status).With("status", v.Status)
	}
	if err := checkNewType(ctx, q, v, t, v.Location.Format); err != nil {
		return plan, err
	}
	hostID, err := volumeHost(ctx, q, v)
	if err != nil {
		return plan, err
	}
	capable := true
	if t.Multiattach {
		if capable, err = poolCan(ctx, q, hostID, v.Location.Pool); err != nil {
			return plan, err
		}
	}
	if plan.InPlace = capable && typeAllows(t, v.Location.Pool); plan.InPlace {
		return plan, nil
	}
	if policy != api.RetypeOnDemand {
		return plan, api.Errorf(api.CodePolicyDenied, "cannot retype volume %s where it is: %s is no place for type %s; with the migration policy %s it is moved", v.Name, Place(v.Location), t.Name, api.RetypeOnDemand)
	}
	if err := checkHeldByOne(ctx, q, v); err != nil {
		return plan, err
	}
	plan.ToPool, err = s.poolForType(ctx, q, v, t, hostID)
	return plan, err
}

// poolForType returns the pool of a host, with the most free space, that the type
// allows a volume in.
func (s *Store) poolForType(ctx context.Context, q ledger.Querier, v api.Volume, t api.VolumeType, hostID string) (string, error) {
	pools, err := ledger.QueryAll(ctx, q, s.scanPool, poolQuery+" WHERE p.host_id = ? AND p.active = 1", hostID)
	if err != nil {
		return "", err
	}
	pools = slices.DeleteFunc(pools, func(p api.Pool) bool {
		return p.Name == v.Location.Pool || !typeAllows(t, p.Name) || t.Multiattach && !p.Multiattach
	})
	if len(pools) == 0 {
		return "", api.Errorf(api.CodeNoCapablePool, "cannot retype volume %s to %s: its host has no other active pool for that type", v.Name, t.Name)
	}
	best := slices.MaxFunc(pools, func(a, b api.Pool) int {
		return cmp.Or(cmp.Compare(a.FreeBytes, b.FreeBytes), cmp.Compare(b.Name, a.Name))
	})
	return best.Name, nil
}
