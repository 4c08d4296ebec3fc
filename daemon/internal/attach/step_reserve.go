// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepReserve keeps the volume for the instance: the registry checks every rule
// of the site, and from here on nobody else gets it. It comes before anything
// names the image, and its undo after everything has let go of it.
func (e *env) stepReserve() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		e.freshen(ctx, in)
		_, err := e.Registry.ReserveAttachment(ctx, r.OpID()+".reserve", api.AttachmentReserve{
			ID: in.AttachmentID, VolumeID: in.VolumeID, InstanceID: in.InstanceID, Device: in.Device, Mode: in.Mode,
			Host: in.Host, Epoch: in.Epoch, Generation: in.Generation, OpID: r.OpID(),
			Root: in.Root,
		})
		return request.Registry(err)
	}
	undo := func(ctx context.Context, r *op.Run, in *input) error {
		_, found, err := e.row(ctx, in)
		if err != nil || !found {
			return err
		}
		if err := e.seenGone(ctx, r, in); err != nil {
			return err
		}
		err = e.giveBack(ctx, r, in, "unreserve", true)
		if request.Lost(err) {
			e.log.Warn("an attachment that was not made is not this host's any more", "attachment", in.AttachmentID, "err", err)
			return nil
		}
		return request.Registry(err)
	}
	observe := func(ctx context.Context, _ *op.Run, in *input) (op.Observation, error) {
		_, found, err := e.row(ctx, in)
		return op.DoneIf(found), err
	}
	return step(stepNameReserve, do, undo, observe)
}

// seenGone makes sure, by a look, that no domain has the disk before its volume
// is given back. A guest that was started while the disk was still in its
// definition has it now, and has to let go.
//
// One that was saved since the definition got the disk may have been started with it
// before: what it has is seen when it is restored, or its saved state removed.
func (e *env) seenGone(ctx context.Context, r *op.Run, in *input) error {
	var note namedNote
	if _, err := r.Noted(stepNameAttachConfig, &note); err != nil {
		return err
	}
	v, err := e.sure(ctx, in)
	switch {
	case err != nil:
		return err
	case v.saved && note.Named:
		return op.WaitFor(waitGuest, in.notSaved(v))
	case v.config == absent && v.live == attached:
		if err := e.takeBack(ctx, in, false); err != nil {
			return err
		}
		return op.Retry(0, in.changed(v))
	case v.config != absent || v.live != absent:
		return op.UnknownOutcome(in.changed(v))
	}
	return nil
}

// stepClaim says at the registry that this host is about to connect the volume.
func (e *env) stepClaim() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		return e.transition(ctx, r, in, stepNameClaim, api.AttachmentAttaching, api.AttachmentReserved)
	}
	return step(stepNameClaim, do, nil, e.inState(api.AttachmentAttaching, api.AttachmentAttached))
}

// stepComplete says that the instance has the volume. The output is the
// attachment.
func (e *env) stepComplete() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		return e.transition(ctx, r, in, stepNameComplete, api.AttachmentAttached, api.AttachmentAttaching)
	}
	return step(stepNameComplete, do, nil, e.inState(api.AttachmentAttached))
}

// inState observes whether the registry has the attachment in one of these
// states. The output is the attachment.
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

// transition asks the registry for one change of state. The op id of the call
// names the op and what is asked, so that a repeated call gets the same answer.
func (e *env) transition(ctx context.Context, r *op.Run, in *input, what string, to api.AttachmentState, from ...api.AttachmentState) error {
	return e.transitionIn(ctx, r, in, in.Epoch, what, to, from...)
}

func (e *env) transitionIn(ctx context.Context, r *op.Run, in *input, epoch int64, what string, to api.AttachmentState, from ...api.AttachmentState) error {
	_, err := e.Registry.TransitionAttachment(ctx, r.OpID()+"."+what, in.AttachmentID, api.AttachmentTransition{
		From: from, To: to, Host: in.Host, Epoch: epoch, OpID: r.OpID(),
	})
	return request.Registry(err)
}

// row reads the attachment from the registry. One that is not this host's is as
// good as none. Its errors are typed for the runner.
func (e *env) row(ctx context.Context, in *input) (att api.Attachment, found bool, err error) {
	att, err = e.Registry.Attachment(ctx, in.AttachmentID)
	if request.Lost(err) {
		return att, false, nil
	}
	return att, err == nil, request.Registry(err)
}

// giveBack releases the attachment, which nothing on this host has any more.
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

// asOfNow says something of the attachment under the epoch of the op, or of now.
func (e *env) asOfNow(ctx context.Context, in *input, say func(epoch int64, again string) error) error {
	now := func() (int64, error) {
		h, err := e.host(ctx)
		return h.Epoch, err
	}
	return request.AsOfNow(in.Epoch, now, say)
}
