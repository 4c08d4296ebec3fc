// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// inState observes whether the attachment has one of these states. Its output is the attachment.
func (e *env) inState(states ...api.AttachmentState) op.ObserveFunc[input] {
	return func(ctx context.Context, r *op.Run, in *input) (op.Observation, error) {
		att, found, err := e.row(ctx, in)
		if err != nil || !found {
			return op.NotDone, err
		}
		for _, state := range states {
			if att.State == state {
				return op.Done, r.SetOutput(att)
			}
		}
		return op.NotDone, nil
	}
}

// transition changes the attachment's state. The call's op id is the op's id with the suffix, so
// that a repeated call gets the same answer.
func (e *env) transition(ctx context.Context, r *op.Run, in *input, suffix string, to api.AttachmentState, from ...api.AttachmentState) error {
	return e.transitionIn(ctx, r, in, in.Epoch, suffix, to, from...)
}

func (e *env) transitionIn(ctx context.Context, r *op.Run, in *input, epoch int64, what string, to api.AttachmentState, from ...api.AttachmentState) error {
	_, err := e.Registry.TransitionAttachment(ctx, r.OpID()+"."+what, in.AttachmentID, api.AttachmentTransition{
		From: from, To: to, Host: in.Host, Epoch: epoch, OpID: r.OpID(),
	})
	return request.Registry(err)
}

// row reads the attachment from the registry. Another host's attachment counts as not found.
func (e *env) row(ctx context.Context, in *input) (att api.Attachment, found bool, err error) {
	att, err = e.Registry.Attachment(ctx, in.AttachmentID)
	if request.Lost(err) {
		return att, false, nil
	}
	return att, err == nil, request.Registry(err)
}

func (e *env) giveBack(ctx context.Context, r *op.Run, in *input, what string, force bool) error {
	slot, err := in.slotKept(r)
	if err != nil {
		return err
	}
	return e.asOfNow(ctx, in, func(epoch int64, again string) error {
		_, err := e.Registry.ReleaseAttachment(ctx, r.OpID()+"."+what+again, in.AttachmentID, api.AttachmentRelease{
			Host: in.Host, Epoch: epoch, OpID: r.OpID(), Force: force, Slot: slot,
		})
		return err
	})
}

func (e *env) asOfNow(ctx context.Context, in *input, say func(epoch int64, again string) error) error {
	now := func() (int64, error) {
		h, err := e.host(ctx)
		return h.Epoch, err
	}
	return request.AsOfNow(in.Epoch, now, say)
}
