// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// The checks in this file refuse an operator's request that the host would refuse, at once and
// even while the host is away. They decide nothing: the host's transactions check the same rules.

// CheckCreate refuses a volume that the host cannot make.
func (s *Volumes) CheckCreate(ctx context.Context, in api.VolumeCreate, hostID string) error {
	t, err := typeByRef(ctx, s.db.sqlite.Read, cmp.Or(in.Type, DefaultType))
	if err != nil {
		return err
	}
	format := cmp.Or(in.Format, api.FormatRaw)
	if err := checkTypeSuits(ctx, s.db.sqlite.Read, t, "make volume "+in.Name, format, in.Bootable); err != nil || in.Pool == "" {
		return err
	}
	return checkTypeAllows(ctx, s.db.sqlite.Read, t, hostID, api.Location{Pool: in.Pool, Name: in.Name, Format: format})
}

// CheckMove refuses a volume that cannot be moved in its present state.
func (s *Volumes) CheckMove(ctx context.Context, v api.Volume) error {
	switch {
	case v.MigrationID != "":
		return MigrationActive(v, "migrate")
	case v.Status != api.VolumeAvailable && v.Status != api.VolumeInUse:
		return NotAvailable(v, "migrate")
	}
	return checkHeldByOne(ctx, s.db.sqlite.Read, v)
}

func checkHeldByOne(ctx context.Context, q ledger.Querier, v api.Volume) error {
	if v.Unheld() {
		return nil
	}
	if n := len(v.Attachments); n > 1 {
		return multiattached(v.Name, n)
	}
	i, err := InstanceByID(ctx, q, v.Attachments[0].InstanceID)
	if err == nil && i.State == api.InstanceShelved {
		err = shelvedOnHost(v.Name, i.Name)
	}
	return err
}

// CheckDelete refuses to delete a volume that is attached or being migrated.
func CheckDelete(v api.Volume) error {
	switch {
	case v.MigrationID != "":
		return refuseMoving("delete", v.Name, v.MigrationID)
	case len(v.Attachments) > 0:
		a := v.Attachments[0]
		return api.Errorf(api.CodeVolumeInUse, "cannot delete volume %s: it is attached to instance %s as %s; detach it first", v.Name, cmp.Or(a.InstanceName, a.InstanceID), a.Device).
			With("instance_id", a.InstanceID)
	}
	return nil
}

// CheckResize refuses a volume that cannot be resized in its present state.
func CheckResize(v api.Volume) error {
	switch {
	case v.MigrationID != "":
		return MigrationActive(v, resizeVerb)
	case v.Status == api.VolumeCreating || v.Status == api.VolumeDeleting || v.Status == api.VolumeError:
		return NotAvailable(v, resizeVerb)
	}
	return nil
}

// CheckAttach refuses to attach a volume that cannot be attached to the instance.
func CheckAttach(v api.Volume, i api.Instance) error {
	if err := lockOf(i).check("attach a volume to", i.Name); err != nil {
		return err
	}
	if v.MigrationID != "" {
		return refuseMoving("attach", v.Name, v.MigrationID)
	}
	if slices.Contains([]api.VolumeStatus{api.VolumeCreating, api.VolumeDeleting, api.VolumeError, api.VolumeResizing}, v.Status) {
		return NotAvailable(v, "attach")
	}
	for _, a := range v.Attachments {
		if a.InstanceID == i.ID {
			return alreadyAttached(v.Name, i.Name, a.ID)
		}
	}
	if len(v.Attachments) > 0 && !v.Multiattach {
		a := v.Attachments[0]
		return usedByInstance(v.Name, cmp.Or(a.InstanceName, a.InstanceID), a.InstanceID, a.ID)
	}
	return nil
}

// CheckDetach refuses to detach a volume that is not attached to the instance, or must stay
// attached now.
func CheckDetach(v api.Volume, i api.Instance) error {
	if err := lockOf(i).check("detach a volume from", i.Name); err != nil {
		return err
	}
	switch {
	case v.MigrationID != "":
		return refuseMoving("detach", v.Name, v.MigrationID)
	case !slices.ContainsFunc(v.Attachments, func(a api.Attachment) bool { return a.InstanceID == i.ID }):
		return api.Errorf(api.CodeNotFound, "volume %s is not attached to instance %s", v.Name, i.Name)
	}
	return nil
}

// CheckKnown is CheckPoolKnown.
func (s *Pools) CheckKnown(ctx context.Context, name string) error {
	return CheckPoolKnown(ctx, s.db.sqlite.Read, name)
}
