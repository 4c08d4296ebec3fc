// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

type released struct {
	// Queued is true if the registry did not answer: a separate op, which blocks no other op, will
	// release the volume.
	Queued bool `json:"queued,omitempty"`
	// Lost is true if the attachment is no longer this host's.
	Lost bool `json:"lost,omitempty"`
}

type releaseSteps struct{ *env }

func (e releaseSteps) stepRelease() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		v, wasGone, err := detachSteps(e).lookGone(ctx, r, in)
		if err != nil {
			return err
		}
		switch {
		case v.live != absent || v.config != absent:
			return in.stands(v, absent)
		case wasGone:
		case v.saved:
			return op.UnknownOutcome(in.withCommands(api.AsError(in.notSaved(v)), []string{shell.Line("virsh", "start", "--", in.InstanceName)}))
		case v.displaced != nil:
			return op.UnknownOutcome(in.withCommands(api.AsError(in.onItsImage("cannot release volume "+in.VolumeName, v)), in.mend(v, attached)))
		}
		force, err := overlooks(r, in)
		if err != nil {
			return err
		}
		err = e.giveBack(ctx, r, in, "release", force)
		switch {
		case err == nil || api.CodeOf(err) == api.CodeNotFound:
			return nil
		case request.Lost(err):
			e.log.Warn("a detached attachment is not this host's any more", "attachment", in.AttachmentID, "err", err)
			return r.Note(ctx, released{Lost: true})
		case request.Away(err):
			return e.queueRelease(ctx, r, in, force)
		}
		return err
	}
	observe := func(ctx context.Context, r *op.Run, in *input) (op.Observation, error) {
		var end released
		if noted, err := r.Noted(stepNameRelease, &end); err != nil {
			return op.Unknown, err
		} else if noted {
			return op.Done, r.SetOutput(end)
		}
		_, found, err := e.row(ctx, in)
		if request.Away(err) {
			return op.NotDone, nil
		}
		return op.DoneIf(!found), err
	}
	return step(stepNameRelease, do, nil, observe)
}

// overlooks reports whether the release ignores the attachment's state: with Force, or because the
// registry does not know of the detach.
func overlooks(r *op.Run, in *input) (bool, error) {
	var note beginNote
	_, err := r.Noted(stepNameBegin, &note)
	return in.Force || note.Skipped, err
}

func (e releaseSteps) queueRelease(ctx context.Context, r *op.Run, in *input, force bool) error {
	slot, err := in.slotKept(r)
	if err != nil {
		return err
	}
	rest := *in
	rest.Force, rest.Request, rest.Body, rest.Slot = force, r.OpID(), request.Body{}, slot
	data, err := json.Marshal(rest)
	if err != nil {
		return fmt.Errorf("encode the release of attachment %s: %w", in.AttachmentID, err)
	}
	err = e.runner.Submit(ctx, op.Op{
		ID: lateID(r.OpID()), Kind: kindRelease, Group: in.AttachmentID, Keys: []string{"attachment/" + in.AttachmentID},
		Input: data, CreatedAt: time.Now().UTC(),
	})
	if err != nil {
		return err
	}
	e.log.Warn("the registry is away: the volume stays reserved until it can be told", "volume", in.VolumeName, "instance", in.InstanceName)
	return r.Note(ctx, released{Queued: true})
}

// lateID returns the id of an op's queued release. It is the same after a crash, so the release is
// queued once.
func lateID(opID string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("release of "+opID)).String()
}

// stepReleaseLate releases the volume when the registry answers. If the registry refuses, the op
// waits for the operator, because the detach cannot be undone.
func (e releaseSteps) stepReleaseLate() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		v, err := e.sure(ctx, in)
		if err != nil {
			return err
		}
		if v.live != absent || v.config != absent {
			return in.stands(v, absent)
		}
		err = e.giveBack(ctx, r, in, "release", in.Force)
		switch {
		case err == nil || api.CodeOf(err) == api.CodeNotFound:
			return nil
		case request.Away(err):
			return request.Registry(err)
		case request.Lost(err):
			e.log.Warn("a detached attachment is not this host's any more", "attachment", in.AttachmentID, "err", err)
			return r.Note(ctx, released{Lost: true})
		}
		refused := api.Errorf(api.CodeOf(err), "the guest of instance %s has let go of volume %s, and the registry refuses to release it: %v", in.InstanceName, in.VolumeName, err)
		return op.UnknownOutcome(in.withCommands(refused, nil))
	}
	observe := func(ctx context.Context, r *op.Run, in *input) (op.Observation, error) {
		var end released
		if noted, err := r.Noted("release_late", &end); err != nil || noted {
			return op.DoneIf(noted), err
		}
		_, found, err := e.row(ctx, in)
		return op.DoneIf(!found), err
	}
	return step("release_late", do, nil, observe)
}

// stepAbsent refuses to end an attachment if a domain has its disk, on any image, or if a save
// image would restore the disk.
func (e releaseSteps) stepAbsent() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *input) error {
		v, err := e.sure(ctx, in)
		if err != nil {
			return err
		}
		return in.stillThere(v)
	}
	return step(stepNameAbsent, do, nil, nil)
}

func (in *input) stillThere(v *view) error {
	if v.live == absent && v.config == absent {
		if err := in.onItsImage("cannot delete attachment "+in.AttachmentID, v); err != nil {
			return err
		}
		return in.notSaved(v)
	}
	return api.Errorf(api.CodeStateForbidden, "cannot delete attachment %s: instance %s has volume %s as a disk; detach it (volferryctl volume detach)",
		in.AttachmentID, in.InstanceName, in.VolumeName)
}
