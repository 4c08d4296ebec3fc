// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/validate"
)

// Lock refuses all changes of an instance until it is unlocked. If the instance is locked
// already, it returns instance_locked.
func (s *Instances) Lock(ctx context.Context, call Call, ref string, in api.InstanceLock) (api.Instance, error) {
	in.Reason = strings.TrimSpace(in.Reason)
	if err := validate.Required("reason", in.Reason); err != nil {
		return api.Instance{}, err
	}
	return Mutate(ctx, s.db, call, "instance.lock", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Instance, error) {
		i, err := tx.OwnInstance(ctx, ref, "lock")
		if err != nil {
			return i, err
		}
		if err := tx.LockInstance(ctx, i.ID, in.Reason, ""); err != nil {
			return i, err
		}
		return InstanceByID(ctx, tx, i.ID)
	})
}

// Unlock removes an operator's lock. It refuses to remove a migration's lock with
// instance_locked: the end of the migration removes that lock.
func (s *Instances) Unlock(ctx context.Context, call Call, ref string) (api.Instance, error) {
	return Mutate(ctx, s.db, call, "instance.unlock", ref, func(ctx context.Context, tx *Tx) (api.Instance, error) {
		i, err := tx.OwnInstance(ctx, ref, "unlock")
		switch {
		case err != nil:
			return i, err
		case !i.Locked:
			return i, api.Errorf(api.CodeStateForbidden, "cannot unlock instance %s: it is not locked", i.Name)
		case i.LockedBy != "":
			return i, lockOf(i).check("unlock", i.Name)
		}
		if err := tx.UnlockInstance(ctx, i.ID, ""); err != nil {
			return i, err
		}
		return InstanceByID(ctx, tx, i.ID)
	})
}

// OwnInstance returns the instance that ref names. It refuses a host that does not have the
// instance; verb names the change.
func (tx *Tx) OwnInstance(ctx context.Context, ref, verb string) (api.Instance, error) {
	id, err := Resolve(ctx, tx, KindInstance, ref)
	if err != nil {
		return api.Instance{}, err
	}
	i, err := InstanceByID(ctx, tx, id)
	if err != nil {
		return i, err
	}
	return i, tx.CheckOwn(ctx, KindInstance, id, verb, i.Name)
}

// LockInstance locks an instance. If op is "", it is an operator's lock; otherwise only the
// migration op may change and unlock the instance.
func (tx *Tx) LockInstance(ctx context.Context, instanceID, reason, op string) error {
	i, err := InstanceByID(ctx, tx, instanceID)
	if err != nil {
		return err
	}
	if err := lockOf(i).check("lock", i.Name); err != nil {
		return err
	}
	return tx.setLock(ctx, i, "instance.lock", instanceLock{reason, op})
}

// UnlockInstance removes the lock of the migration op, or an operator's lock if op is "", but no
// other lock.
func (tx *Tx) UnlockInstance(ctx context.Context, instanceID, op string) error {
	i, err := InstanceByID(ctx, tx, instanceID)
	if err != nil || !i.Locked || i.LockedBy != op {
		return err
	}
	return tx.setLock(ctx, i, "instance.unlock", instanceLock{})
}

// ExplainLock changes the reason of a lock.
func (tx *Tx) ExplainLock(ctx context.Context, i api.Instance, reason string) error {
	return tx.setLock(ctx, i, "instance.lock", instanceLock{reason, i.LockedBy})
}

func (tx *Tx) setLock(ctx context.Context, i api.Instance, what string, lock instanceLock) error {
	if err := tx.Exec(ctx, "UPDATE instances SET lock_reason = ?, lock_op = ?, updated_us = ? WHERE id = ?",
		lock.reason, lock.op, tx.At.UnixMicro(), i.ID); err != nil {
		return err
	}
	details := map[string]any{"name": i.Name, "reason": lock.reason + i.LockReason}
	if migration := lock.op + i.LockedBy; migration != "" {
		details["migration_id"] = migration
	}
	return tx.Audit(ctx, api.Event{What: what, Host: i.Host, Object: "instance/" + i.ID, Details: details})
}
