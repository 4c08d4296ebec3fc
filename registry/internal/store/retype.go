// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// RetypePlan says what has to be done to give a volume another type.
type RetypePlan struct {
	// InPlace says that the volume may stay where it is, and RetypeVolume can do it.
	// Otherwise it has to be migrated to ToPool, or ToPath if that is set, with the type.
	InPlace bool
	Volume  api.Volume
	Type    api.VolumeType
	ToPool  string
	ToPath  string
}

// IsMove reports whether RetypeVolume has refused a retype for no other reason than that the
// volume has to be moved, which is allowed.
func IsMove(refusal error) bool { return api.AsError(refusal).Details[detailMove] != nil }

// detailMove is the detail of a refusal that has where the volume is to be moved.
const detailMove = "to"

// to is where the volume has to go, for people; "" is nowhere.
func (p RetypePlan) to() string {
	if p.ToPath == "" && p.ToPool != "" {
		return "pool " + p.ToPool
	}
	return p.ToPath
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
		return s.planRetype(ctx, q, v, t, in)
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
		plan, err := s.planRetype(ctx, tx, v, t, in)
		switch {
		case err != nil:
			return v, err
		case !plan.InPlace:
			return v, api.Errorf(api.CodeConflict, "cannot retype volume %s to %s where it is, at %s: migrate it to %s with that type", v.Name, t.Name, Place(v.Location), plan.to()).
				With(detailMove, plan.to())
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
		return cmp.Or(validate.Text("pool", in.ToPool), validate.Text("path", in.ToPath))
	}
	return validate.Invalid("the migration policy %s is not one of never and on-demand", validate.Quote(in.MigrationPolicy))
}

// planRetype decides whether a volume gets a type where it is or elsewhere.
func (s *Store) planRetype(ctx context.Context, q ledger.Querier, v api.Volume, t api.VolumeType, in api.VolumeRetype) (RetypePlan, error) {
	plan := RetypePlan{Volume: v, Type: t, ToPool: in.ToPool, ToPath: in.ToPath}
	switch {
	case v.MigrationID != "":
		return plan, MigrationActive(v, "retype")
	case v.Status != api.VolumeAvailable && v.Status != api.VolumeReserved && v.Status != api.VolumeInUse:
		return plan, api.Errorf(api.CodeVolumeNotAvailable, "cannot retype volume %s: it is %s", v.Name, v.Status).With("status", v.Status)
	}
	format := cmp.Or(in.ToFormat, v.Location.Format)
	if err := checkNewType(ctx, q, v, t, format); err != nil {
		return plan, err
	}
	hostID, err := volumeHost(ctx, q, v)
	if err != nil {
		return plan, err
	}
	there, err := atRetypeTarget(ctx, q, v, t, hostID, in)
	if err != nil {
		return plan, err
	}
	capable := true
	if t.Multiattach {
		if capable, err = poolCan(ctx, q, hostID, v.Location.Pool); err != nil {
			return plan, err
		}
	}
	converted := format != v.Location.Format
	plan.InPlace = there && capable && !converted && typeAllows(t, v.Location.Pool)
	switch {
	case plan.InPlace:
		return plan, nil
	case there && plan.to() != "" && converted:
		return plan, api.Errorf(api.CodeSameLocation, "cannot give volume %s the format %s at %s: it is there as %s; name another place", v.Name, format, plan.to(), v.Location.Format)
	case there && plan.to() != "":
		return plan, api.Errorf(api.CodeNoCapablePool, "cannot retype volume %s to %s at %s: the type is multiattach, and the pool %s cannot do that", v.Name, t.Name, Place(v.Location), v.Location.Pool)
	}
	if in.MigrationPolicy != api.RetypeOnDemand { // which a format goes with
		return plan, api.Errorf(api.CodePolicyDenied, "cannot retype volume %s where it is: %s is no place for type %s; with the migration policy %s it is moved", v.Name, Place(v.Location), t.Name, api.RetypeOnDemand)
	}
	if err := checkHeldByOne(ctx, q, v); err != nil {
		return plan, err
	}
	if plan.to() == "" {
		plan.ToPool, err = s.poolForType(ctx, q, v, t, hostID)
	}
	return plan, err
}

// atRetypeTarget reports whether a volume is already where its retype wants it. No target is
// wherever the volume is. A target where volumes of the type may not live is refused, but for a
// device, of which the host finds the pool first; what else stands against it, the host finds.
func atRetypeTarget(ctx context.Context, q ledger.Querier, v api.Volume, t api.VolumeType, hostID string, in api.VolumeRetype) (bool, error) {
	plan := RetypePlan{ToPool: in.ToPool, ToPath: in.ToPath}
	if plan.to() == "" {
		return true, nil
	}
	dst := api.Location{Pool: in.ToPool}
	if in.ToPath != "" {
		var err error
		if dst, err = inItsPool(ctx, q, hostID, api.Location{Path: path.Clean(in.ToPath)}); err != nil {
			return false, err
		}
	}
	if !typeAllows(t, dst.Pool) && !ofUnknownPool(dst) {
		return false, api.Errorf(api.CodePolicyDenied, "cannot move volume %s to %s: its new type %s allows the pools %q only", v.Name, plan.to(), t.Name, t.Pools)
	}
	src := v.Location
	if dst.Path != "" && dst.Path == src.Path {
		return true, nil
	}
	return dst.Pool != "" && dst.Pool == src.Pool && (in.ToPool != "" || dst.Name == src.Name), nil
}

// ofUnknownPool reports whether a place is a device of which only its host knows whether a pool has
// it.
func ofUnknownPool(l api.Location) bool { return l.Pool == "" && strings.HasPrefix(l.Path, "/dev/") }

// CheckRetypeDst refuses a place that a host has found for the move of a retype, if volumes of
// the new type may not live there. It decides nothing: RegisterMigration refuses it as well.
func (s *Store) CheckRetypeDst(ctx context.Context, plan RetypePlan, hostID string, dst api.Location) error {
	return checkTypeAllows(ctx, s.db.Read, plan.Type, hostID, dst)
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
