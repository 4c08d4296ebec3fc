// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/volferry/volferry/internal/api"
)

// adoptDisk makes a disk that an instance has a volume with one attachment, or a
// further attachment of the volume that it is already.
func (tx *Tx) adoptDisk(ctx context.Context, in api.InstanceRegister, hostID string, d api.AdoptedDisk) error {
	v, err := volumeByID(ctx, tx, d.VolumeID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if err := tx.adoptNew(ctx, hostID, d); err != nil {
			return err
		}
		v, err = volumeByID(ctx, tx, d.VolumeID)
	case err == nil && len(v.Attachments) > 0:
		err = tx.adoptShared(ctx, in, v, hostID, d)
	case err == nil:
		err = tx.readopt(ctx, v, hostID, d)
	}
	if err != nil {
		return err
	}
	return tx.insertAttachment(ctx, attachment{
		id: d.AttachmentID, volumeID: v.ID, volumeName: v.Name,
		instanceID: in.ID, instanceName: in.Name, device: d.Device, mode: d.Mode, state: api.AttachmentAttached,
		exclusive: !v.Multiattach,
	})
}

// adoptNew makes the volume. Only a disk that its domain shares is of a multiattach
// type.
func (tx *Tx) adoptNew(ctx context.Context, hostID string, d api.AdoptedDisk) error {
	t, err := typeByRef(ctx, tx, cmp.Or(d.Type, DefaultType))
	if err != nil {
		return err
	}
	name := t.Name
	if t.Multiattach && !d.Shareable {
		name = DefaultType
	}
	return tx.insertVolume(ctx, api.VolumeRegister{
		ID: d.VolumeID, Name: d.VolumeName, Type: name, Bootable: api.IsRoot(d.BootIndex), Location: d.Location,
	}, hostID, api.VolumeAvailable)
}

// adoptShared says whether a disk may be a further attachment of a volume that other
// instances have: by the rules of every attach, and only if its domain shares it.
func (tx *Tx) adoptShared(ctx context.Context, in api.InstanceRegister, v api.Volume, hostID string, d api.AdoptedDisk) error {
	has := v.Attachments[0]
	refuse := func(code api.Code, format string, args ...any) *api.Error {
		args = append([]any{d.Device, in.Name, v.Name, cmp.Or(has.InstanceName, has.InstanceID)}, args...)
		return api.Errorf(code, "cannot adopt disk %s of domain %s: it is volume %s, which instance %s has; "+format, args...).
			With("volume_id", v.ID).With("instance_id", has.InstanceID)
	}
	switch {
	case v.MigrationID != "":
		return MigrationActive(v, "adopt a disk of")
	case !v.Multiattach:
		return refuse(api.CodeVolumeInUse, "if they share it, `volferryctl instance forget %s`, `volferryctl volume retype %s --type TYPE` to a multiattach type, and adopt both again",
			cmp.Or(has.InstanceName, has.InstanceID), v.Name)
	case !d.Shareable:
		return refuse(api.CodeUnsupportedDisk, "its definition does not share it: add <shareable/> to the disk (virsh edit %s) and adopt it again", in.Name)
	case v.Location.Path != d.Location.Path:
		return refuse(api.CodeConflict, "it is at %s there and at %s here", v.Location.Path, d.Location.Path)
	}
	w, err := tx.volumeForReserve(ctx, v.ID)
	if err != nil {
		return err
	}
	again := api.AttachmentReserve{InstanceID: in.ID, Root: api.IsRoot(d.BootIndex)}
	if err := tx.checkMultiattach(ctx, w, slotForReserve{instanceName: in.Name}, again); err != nil {
		return err
	}
	return tx.checkAttachReach(ctx, w, hostID)
}

// readopt puts a volume into use again that an instance had before it was
// forgotten. It must be free, and be where the disk is.
func (tx *Tx) readopt(ctx context.Context, v api.Volume, hostID string, d api.AdoptedDisk) error {
	if v.Status != api.VolumeAvailable || v.MigrationID != "" {
		return api.Errorf(api.CodeVolumeNotAvailable, "cannot adopt disk %s: its volume %s is %s", d.Device, v.Name, v.Status)
	}
	if v.Location.Path != d.Location.Path {
		return api.Errorf(api.CodeConflict, "cannot adopt disk %s at %s: its volume %s is at %s", d.Device, d.Location.Path, v.Name, v.Location.Path)
	}
	if err := tx.checkReach(ctx, "take back", v, hostID); err != nil {
		return err
	}
	return tx.Exec(ctx, "UPDATE volumes SET host_id = ?, updated_us = ? WHERE id = ?", hostID, tx.At.UnixMicro(), v.ID)
}
