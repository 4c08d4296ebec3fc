// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/registry/internal/validate"
)

// attachmentNext has the states that may follow each state. In error, the host cannot tell whether
// the guest has the disk; it may later find any of the states after error.
var attachmentNext = map[api.AttachmentState][]api.AttachmentState{
	api.AttachmentReserved:  {api.AttachmentAttaching},
	api.AttachmentAttaching: {api.AttachmentAttached, api.AttachmentError},
	api.AttachmentAttached:  {api.AttachmentDetaching, api.AttachmentError},
	api.AttachmentDetaching: {api.AttachmentAttached, api.AttachmentError},
	api.AttachmentError:     {api.AttachmentAttaching, api.AttachmentAttached, api.AttachmentDetaching},
}

// Transition changes the state of an attachment if its present state is in in.From. Otherwise it
// returns a conflict.
func (s *Attachments) Transition(ctx context.Context, call Call, ref string, in api.AttachmentTransition) (api.Attachment, error) {
	if err := checkAttachmentTransition(in); err != nil {
		return api.Attachment{}, err
	}
	return Mutate(ctx, s.db, call, "attachment.transition", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Attachment, error) {
		h, err := tx.attachmentRowOf(ctx, ref, in.Host, in.Epoch)
		if err != nil {
			return api.Attachment{}, err
		}
		if h.State == in.To && h.opID == in.OpID && in.OpID != "" {
			// The host repeats the request because it lost the answer.
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

// shelved returns the refusal of a change (verb) of an attachment: its instance is shelved and
// still on its host.
func (a attachmentRow) shelved(verb string) error {
	return api.Errorf(api.CodeStateForbidden, "cannot %s volume %s: its instance %s is shelved and still on its host; unshelve it, or take it off with `%s`", verb, a.VolumeName, a.InstanceName, shell.Line("volferryctl", "instance", "shelve", a.InstanceName)).
		With("state", a.instanceState)
}
