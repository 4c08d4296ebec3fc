// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// attachmentNext are the states that follow each other. Error is that of an
// attachment whose host cannot tell what the guest has; what it finds out then
// leads out of it.
var attachmentNext = map[api.AttachmentState][]api.AttachmentState{
	api.AttachmentReserved:  {api.AttachmentAttaching},
	api.AttachmentAttaching: {api.AttachmentAttached, api.AttachmentError},
	api.AttachmentAttached:  {api.AttachmentDetaching, api.AttachmentError},
	api.AttachmentDetaching: {api.AttachmentAttached, api.AttachmentError},
	api.AttachmentError:     {api.AttachmentAttaching, api.AttachmentAttached, api.AttachmentDetaching},
}

// TransitionAttachment moves an attachment to another state, if it is in one of
// those that its host expects.
func (s *Store) TransitionAttachment(ctx context.Context, call Call, ref string, in api.AttachmentTransition) (api.Attachment, error) {
	if err := checkAttachmentTransition(in); err != nil {
		return api.Attachment{}, err
	}
	return Mutate(ctx, s, call, "attachment.transition", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Attachment, error) {
		h, err := tx.attachmentRowOf(ctx, ref, in.Host, in.Epoch)
		if err != nil {
			return api.Attachment{}, err
		}
		if h.State == in.To && h.opID == in.OpID && in.OpID != "" {
			// The answer was lost.
			return h.Attachment, nil
		}
		if err := h.checkStep(in); err != nil {
			return api.Attachment{}, err
		}
		if in.To == api.AttachmentDetaching {
			if err := tx.CheckNoSplitBrain("detach volume "+h.VolumeName+" from instance "+h.InstanceName, h.InstanceID, h.hostID); err != nil {
				return api.Attachment{}, err
			}
		}
		from := h.State
		h.State, h.opID, h.UpdatedAt = in.To, in.OpID, tx.At
		if err := tx.Exec(ctx, moveAttachment, in.To, in.OpID, tx.At.UnixMicro(), h.ID); err != nil {
			return api.Attachment{}, err
		}
		tx.cache.attachments.put(h)
		return h.Attachment, tx.auditAttachment(ctx, h, api.Event{What: "attachment.transition", From: string(from), To: string(in.To), OpID: in.OpID}, nil)
	})
}

func checkAttachmentTransition(in api.AttachmentTransition) error {
	if len(in.From) == 0 {
		return validate.Invalid("the states that the attachment may be in are missing")
	}
	for _, from := range in.From {
		next, known := attachmentNext[from]
		if !known || !slices.Contains(next, in.To) {
			return validate.Invalid("an attachment cannot be moved from %s to %s", validate.Quote(string(from)), validate.Quote(string(in.To)))
		}
	}
	return validate.Text("op id", in.OpID)
}

// checkStep says whether the attachment, as it is now, may make the step.
func (a attachmentRow) checkStep(in api.AttachmentTransition) error {
	switch {
	case a.migrationID != "":
		return refuseMoving("change the reserved attachment of", a.VolumeName, a.migrationID)
	case !slices.Contains(in.From, a.State):
		return api.Errorf(api.CodeConflict, "the attachment of volume %s to instance %s is %s, none of %q", a.VolumeName, a.InstanceName, a.State, in.From).
			With("state", a.State)
	case in.To != api.AttachmentDetaching:
		return nil
	case a.movedBy != "":
		return refuseMoving("detach", a.VolumeName, a.movedBy)
	case a.lock.reason != "":
		return a.lock.check("detach a volume from", a.InstanceName)
	case api.IsRoot(a.BootIndex) && a.instanceState != api.InstanceStopped:
		return api.Errorf(api.CodeRootDetachForbidden, "cannot detach root device volume %s from instance %s: it is %s; %s", a.VolumeName, a.InstanceName, a.instanceState, stopAdvice(a.InstanceName, a.instanceState)).
			With("state", a.instanceState)
	case a.instanceState == api.InstanceShelved:
		return a.shelved("detach")
	}
	return nil
}

// shelved refuses what is done to an attachment on its host alone, or on none.
func (a attachmentRow) shelved(verb string) error {
	return api.Errorf(api.CodeStateForbidden, "cannot %s volume %s: its instance %s is shelved and still on its host; unshelve it, or take it off with `volferryctl instance shelve %s`", verb, a.VolumeName, a.InstanceName, a.InstanceName).
		With("state", a.instanceState)
}

// attachmentRow is an attachment with what the rules of its changes need.
type attachmentRow struct {
	api.Attachment
	migrationID   string // of a reserved dst, else ""
	opID          string
	hostID        string // "" where no host has its instance
	instanceState api.InstanceState
	lock          instanceLock
	generation    int64
	movedBy       string // the open migration of its volume, "" if there is none
}

const attachmentRowQuery = `SELECT a.id, a.volume_id, a.instance_id, a.mode, a.device, s.boot_index, a.state, a.created_us, a.updated_us,
		COALESCE(a.migration_id, ''), a.op_id, ` + instanceHostID + `, i.name, i.state, i.lock_reason, i.lock_op, v.name, v.generation, COALESCE(m.id, ''), ` + LocationColumns + `
	FROM attachments a
	JOIN slots s ON s.instance_id = a.instance_id AND s.device = a.device
	JOIN instances i ON i.id = a.instance_id
	JOIN volumes v ON v.id = a.volume_id
	JOIN locations l ON l.volume_id = a.volume_id AND l.migration_id IS a.migration_id
	LEFT JOIN migrations m ON m.volume_id = a.volume_id AND ` + MigrationOpen + `
	WHERE a.id = ?`

// attachmentRow returns the attachment that ref names.
func (tx *Tx) attachmentRow(ctx context.Context, ref string) (attachmentRow, error) {
	h, err := tx.attachmentRowByID(ctx, ref)
	if !errors.Is(err, sql.ErrNoRows) {
		return h, err
	}
	id, err := Resolve(ctx, tx, KindAttachment, ref)
	if err != nil {
		return h, err
	}
	return tx.attachmentRowByID(ctx, id)
}

func (tx *Tx) attachmentRowByID(ctx context.Context, id string) (attachmentRow, error) {
	if h, ok := tx.cache.attachments[id]; ok {
		return h, nil
	}
	var (
		h                attachmentRow
		created, updated int64
	)
	if err := tx.QueryRowContext(ctx, attachmentRowQuery, id).Scan(append([]any{
		&h.ID, &h.VolumeID, &h.InstanceID, &h.Mode, &h.Device, &h.BootIndex, &h.State, &created, &updated,
		&h.migrationID, &h.opID, &h.hostID, &h.InstanceName, &h.instanceState, &h.lock.reason, &h.lock.op, &h.VolumeName, &h.generation, &h.movedBy,
	}, LocationFields(&h.Location)...)...); err != nil {
		return h, fmt.Errorf("read attachment %s: %w", validate.Clip(id), err)
	}
	h.CreatedAt, h.UpdatedAt = ledger.FromMicros(created), ledger.FromMicros(updated)
	if h.hostID != "" {
		host, err := tx.hostRow(ctx, h.hostID)
		if err != nil {
			return h, err
		}
		h.Host = host.Name
	}
	tx.cache.attachments.put(h)
	return h, nil
}

// attachmentRowOf is attachmentRow for a change that only its host may ask for.
func (tx *Tx) attachmentRowOf(ctx context.Context, ref, hostRef string, epoch int64) (attachmentRow, error) {
	hostID, err := tx.CheckHost(ctx, hostRef, epoch)
	if err != nil {
		return attachmentRow{}, err
	}
	h, err := tx.attachmentRow(ctx, ref)
	if err != nil {
		return h, err
	}
	if h.hostID == "" {
		return h, api.Errorf(api.CodeNotYourHost, "the attachment of volume %s to instance %s is no host's: the instance is %s", h.VolumeName, h.InstanceName, h.instanceState)
	}
	if h.hostID != hostID {
		return h, api.Errorf(api.CodeNotYourHost, "the attachment of volume %s to instance %s is host %s's", h.VolumeName, h.InstanceName, h.Host)
	}
	return h, nil
}

// auditAttachment adds to the trail what happened to an attachment, with its
// volume and its instance.
func (tx *Tx) auditAttachment(ctx context.Context, h attachmentRow, e api.Event, details map[string]any) error {
	if details == nil {
		details = map[string]any{}
	}
	details["volume_id"], details["volume_name"] = h.VolumeID, h.VolumeName
	details["instance_id"], details["instance_name"] = h.InstanceID, h.InstanceName
	e.Host, e.Object, e.Details, e.Token = h.Host, "attachment/"+h.ID, details, &api.Token{Generation: h.generation}
	return tx.Audit(ctx, e)
}
