// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

type reserveSteps struct{ *env }

// stepReserve reserves the volume for the instance: the registry checks the site's rules, and
// gives the volume to no other instance. The step precedes all steps that use the image.
func (e reserveSteps) stepReserve() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		if err := e.checkAttachBesideMoves(ctx, in); err != nil {
			return err
		}
		e.freshen(ctx, in)
		_, err := e.Registry.ReserveAttachment(ctx, r.OpID()+".reserve", in.Reserve(api.AttachmentReserve{
			ID: in.AttachmentID, VolumeID: in.VolumeID, InstanceID: in.InstanceID,
			Host: in.Host, Epoch: in.Epoch, Generation: in.Generation, OpID: r.OpID(),
			Root: in.Root,
		}))
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

// seenGone verifies that no domain has the disk before its volume is released. A guest started
// while the definition had the disk must release it.
//
// A guest saved since the definition got the disk may have the disk. seenGone then waits until the
// guest is restored, which shows its disks, or its save image is removed.
func (e reserveSteps) seenGone(ctx context.Context, r *op.Run, in *input) error {
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
		if err := attachSteps(e).takeBack(ctx, in, false); err != nil {
			return err
		}
		return op.Retry(0, in.changed(v))
	case v.config != absent || v.live != absent:
		return in.stands(v, absent)
	}
	return nil
}

func (e reserveSteps) stepClaim() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		return e.transition(ctx, r, in, stepNameClaim, api.AttachmentAttaching, api.AttachmentReserved)
	}
	return step(stepNameClaim, do, nil, e.inState(api.AttachmentAttaching, api.AttachmentAttached))
}

func (e reserveSteps) stepComplete() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		return e.transition(ctx, r, in, stepNameComplete, api.AttachmentAttached, api.AttachmentAttaching)
	}
	return step(stepNameComplete, do, nil, e.inState(api.AttachmentAttached))
}
