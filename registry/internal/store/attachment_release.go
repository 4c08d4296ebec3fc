// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/validate"
)

// Release ends an attachment and returns it as it was. Its host calls this after it has
// seen that the guest does not have the disk.
func (s *Attachments) Release(ctx context.Context, call Call, ref string, in api.AttachmentRelease) (api.Attachment, error) {
	if err := validate.Text("op id", in.OpID); err != nil {
		return api.Attachment{}, err
	}
	if in.Slot != nil {
		if err := validate.SlotDefinition("of the slot", *in.Slot); err != nil {
			return api.Attachment{}, err
		}
	}
	return Mutate(ctx, s.db, call, "attachment.release", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Attachment, error) {
		h, err := tx.attachmentRowOf(ctx, ref, in.Host, in.Epoch)
		if err != nil {
			return api.Attachment{}, err
		}
		if h.movedBy != "" {
			return api.Attachment{}, refuseMoving("release", h.VolumeName, h.movedBy)
		}
		if h.instanceState == api.InstanceShelved {
			return api.Attachment{}, h.shelved("release")
		}
		if !in.Force && (h.State == api.AttachmentAttached || h.State == api.AttachmentAttaching) {
			return api.Attachment{}, api.Errorf(api.CodeConflict, "cannot release volume %s: its attachment to instance %s is %s; detach it first", h.VolumeName, h.InstanceName, h.State).
				With("state", h.State)
		}
		if err := tx.removeAttachment(ctx, h, in.Slot); err != nil {
			return api.Attachment{}, err
		}
		return h.Attachment, tx.auditAttachment(ctx, h, api.Event{What: "attachment.release", From: string(h.State), OpID: in.OpID},
			map[string]any{"force": in.Force})
	})
}

// ForceDelete ends an attachment of a fenced host, for an operator, and returns it as it was. Any
// other host must delete it itself, and check whether the guest has the disk.
func (s *Attachments) ForceDelete(ctx context.Context, call Call, ref string) (api.Attachment, error) {
	return mutateAudited(ctx, s.trail, call, "attachment.force_delete", "attachment/"+validate.Clip(ref), ref, admitToken, func(ctx context.Context, tx *Tx) (api.Attachment, error) {
		if err := tx.CheckOperator("delete an attachment by force"); err != nil {
			return api.Attachment{}, err
		}
		h, err := tx.attachmentRow(ctx, ref)
		if err != nil {
			return api.Attachment{}, err
		}
		if h.hostID == "" {
			return api.Attachment{}, api.Errorf(api.CodeStateForbidden, "cannot delete the attachment of volume %s to instance %s by force: no host has the instance, so it can be detached", h.VolumeName, h.InstanceName)
		}
		host, err := tx.hostRow(ctx, h.hostID)
		if err != nil {
			return api.Attachment{}, err
		}
		if err := checkFenced(host, "delete the attachment of volume "+h.VolumeName+" to instance "+h.InstanceName); err != nil {
			return api.Attachment{}, err
		}
		if err := tx.CheckNoSplitBrain("delete the attachment of volume "+h.VolumeName+" to instance "+h.InstanceName, h.InstanceID, h.hostID); err != nil {
			return api.Attachment{}, err
		}
		if h.movedBy != "" {
			return api.Attachment{}, api.Errorf(api.CodeMigrationActive, "cannot delete the attachment of volume %s to instance %s: migration %s was moving the volume; abandon that first",
				h.VolumeName, h.InstanceName, h.movedBy).With("migration_id", h.movedBy)
		}
		if err := tx.removeAttachment(ctx, h, nil); err != nil {
			return api.Attachment{}, err
		}
		return h.Attachment, tx.auditAttachment(ctx, h, api.Event{What: "attachment.force_delete", From: string(h.State)}, nil)
	})
}

// removeAttachment removes an attachment of a volume that is not in migration, and its slot. A
// slot with a boot index stays, empty; known, unless nil, becomes its definition.
func (tx *Tx) removeAttachment(ctx context.Context, h attachmentRow, known *api.SlotDefinition) error {
	if err := tx.storeDetachedDisk(ctx, h, known); err != nil {
		return err
	}
	// Store the time of the change, which the attachment's row loses.
	if err := tx.Exec(ctx, touchVolume, tx.At.UnixMicro(), h.VolumeID); err != nil {
		return err
	}
	if h.BootIndex != nil {
		if err := tx.Exec(ctx, "DELETE FROM attachments WHERE id = ?", h.ID); err != nil {
			return err
		}
		return tx.storeSlot(ctx, h.InstanceID, h.Device, known)
	}
	// The database deletes the attachment with its slot.
	delete(tx.cache.attachments, h.ID)
	return tx.Exec(ctx, removeSlot, h.InstanceID, h.Device)
}

// DetachUnheld removes an attachment of an instance that no host has, and returns it as it was. If
// disks has a definition for the device, the slot keeps it.
func (tx *Tx) DetachUnheld(ctx context.Context, id string, disks map[string]api.SlotDefinition) (none api.Attachment, err error) {
	h, err := tx.attachmentRow(ctx, id)
	if err != nil {
		return none, err
	}
	if h.movedBy != "" {
		return none, refuseMoving("detach", h.VolumeName, h.movedBy)
	}
	if err := h.lock.check("detach a volume from", h.InstanceName); err != nil {
		return none, err
	}
	var slot *api.SlotDefinition
	if known, ok := disks[h.Device]; ok {
		slot = &known
	}
	if err := tx.removeAttachment(ctx, h, slot); err != nil {
		return none, err
	}
	return h.Attachment, tx.auditAttachment(ctx, h, api.Event{What: "attachment.detach", From: string(h.State)}, nil)
}
