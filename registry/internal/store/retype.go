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

// RetypePlan describes how a volume gets another type.
type RetypePlan struct {
	// InPlace means that Retype can change the type at the present location. Otherwise the
	// volume must be migrated with the type to ToPool, or to ToPath if that is set.
	InPlace bool
	Volume  api.Volume
	Type    api.VolumeType
	ToPool  string
	ToPath  string
}

// IsMove reports whether Retype refused only because the volume must be moved, and the caller
// allows the move.
func IsMove(refusal error) bool { return api.AsError(refusal).Details[detailMove] != nil }

const detailMove = "to"

func (p RetypePlan) to() string {
	if p.ToPath == "" && p.ToPool != "" {
		return "pool " + p.ToPool
	}
	return p.ToPath
}

// Retypes changes the types of volumes.
type Retypes struct {
	db    *DB
	pools *Pools
}

// Plan returns the plan of a retype, or refuses the retype for every reason that is known
// now.
func (s *Retypes) Plan(ctx context.Context, ref string, in api.VolumeRetype) (RetypePlan, error) {
	if err := checkRetype(in); err != nil {
		return RetypePlan{}, err
	}
	return ledger.View(ctx, s.db.sqlite.Read, func(q ledger.Querier) (RetypePlan, error) {
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
		return s.plan(ctx, q, v, t, in)
	})
}

// Retype changes the type of a volume without moving it. If a move is needed, Retype refuses: with
// conflict if the caller allows a migration, and with policy_denied if not.
func (s *Retypes) Retype(ctx context.Context, call Call, ref string, in api.VolumeRetype) (api.Volume, error) {
	if err := checkRetype(in); err != nil {
		return api.Volume{}, err
	}
	return Mutate(ctx, s.db, call, "volume.retype", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		v, err := careTx{tx}.inCare(ctx, ref, "retype")
		if err != nil {
			return v, err
		}
		t, err := typeByRef(ctx, tx, in.Type)
		if err != nil {
			return v, err
		}
		plan, err := s.plan(ctx, tx, v, t, in)
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

func (s *Retypes) plan(ctx context.Context, q ledger.Querier, v api.Volume, t api.VolumeType, in api.VolumeRetype) (RetypePlan, error) {
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
	if in.MigrationPolicy != api.RetypeOnDemand { // the caller must send on-demand with a new format
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

// atRetypeTarget reports whether the volume is already at the target of its retype, or there is no
// target. It refuses a target that the type does not allow, except a device (ofUnknownPool). The
// host checks everything else.
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

// ofUnknownPool reports whether a location is a device; only the host can find its pool.
func ofUnknownPool(l api.Location) bool { return l.Pool == "" && strings.HasPrefix(l.Path, "/dev/") }

// CheckDst refuses a destination that the new type does not allow. It decides nothing:
// Migrations.Register checks it again.
func (s *Retypes) CheckDst(ctx context.Context, plan RetypePlan, hostID string, dst api.Location) error {
	return checkTypeAllows(ctx, s.db.sqlite.Read, plan.Type, hostID, dst)
}

func (s *Retypes) poolForType(ctx context.Context, q ledger.Querier, v api.Volume, t api.VolumeType, hostID string) (string, error) {
	pools, err := ledger.QueryAll(ctx, q, s.pools.scan, poolQuery+" WHERE p.host_id = ? AND p.active = 1", hostID)
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
