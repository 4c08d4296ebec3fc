// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/volferry/volferry/internal/api"
)

// AttachUnheld attaches a volume to an instance that no host has: there is no guest to
// give it to, so the attachment is attached at once.
func (tx *Tx) AttachUnheld(ctx context.Context, in api.AttachmentReserve) (none api.Attachment, err error) {
	v, err := tx.volumeForReserve(ctx, in.VolumeID)
	if err != nil {
		return none, err
	}
	slot, err := tx.slotForReserve(ctx, in.InstanceID, in.Device)
	if err != nil {
		return none, err
	}
	if err := slot.check(in); err != nil {
		return none, err
	}
	if err := tx.checkReservable(ctx, v, slot, in); err != nil {
		return none, err
	}
	h := attachmentRow{
		Attachment: api.Attachment{
			ID: in.ID, VolumeID: v.id, VolumeName: v.name, InstanceID: in.InstanceID, InstanceName: slot.instanceName,
			Mode: in.Mode, Device: in.Device, State: api.AttachmentAttached,
		},
		opID: in.OpID, generation: v.generation,
	}
	if err := tx.storeAttachment(ctx, v, slot, h); err != nil {
		return none, err
	}
	if err := tx.auditAttachment(ctx, h, api.Event{What: "attachment.attach", To: string(h.State), OpID: in.OpID},
		map[string]any{"device": in.Device, "mode": in.Mode}); err != nil {
		return none, err
	}
	return AttachmentByID(ctx, tx, in.ID)
}

// DetachUnheld removes an attachment of an instance that no host has, and returns what
// it was. The slot keeps its definition, if disks has one for its device.
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
