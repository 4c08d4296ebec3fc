// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// pivotRetry is the wait before another pivot while QEMU's job is not ready.
const pivotRetry = 5 * time.Millisecond

// StepPivot moves the running guest's disk to the new image: dst, or src for a cancel. It is the
// commit point. If the process ended in the pause and the definition names the new image, no pivot
// is needed: both chains have the paused guest's last write.
func (e *Env) StepPivot(to move.Direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return err
		}
		switch {
		case disk.Active && disk.Live == to.End, !disk.Active && disk.Config == to.End:
			return nil // Observe checks which writes the new image has
		case !disk.Active:
			return look.GuestIsOff(s)
		case !move.InBackground(s, to) && disk.Config != to.End:
			return nameTakenBack(s, to, disk)
		}
		clean, err := e.pause.Drained(ctx, s, to, disk)
		if err != nil {
			return err
		}
		if !clean {
			return op.Retry(pivotRetry, api.Errorf(api.CodeInstanceBusy, "the fold into %s is not clean yet", to.Image(s).Path))
		}
		background := move.InBackground(s, to)
		var before blockjob.RunNote
		if background {
			if disk.Config == to.End { // another program named it; the pivot would seem complete
				if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.BeforeChain()); err != nil {
					return e.move.HVError(err)
				}
			}
			if _, err := r.Noted(PivotStep, &before); err != nil {
				return err
			}
			if err := e.blockjob.NoteAsked(ctx, r, s, to, disk, before); err != nil { // see overlayHasAll, dstHasAll
				return err
			}
		}
		err = e.hv.Pivot(ctx, s.InstanceID, s.Target)
		if err == nil {
			return nil
		}
		now, lookErr := e.pause.ConfirmDiskInPause(ctx, r, s)
		if background && !errors.Is(err, hv.ErrUnavailable) && (lookErr != nil || !now.Active || now.Live != to.End) {
			if to.End == move.OnDst && before.Asked && before.Run == disk.Dom.Run && lookErr == nil && now.Mirror != nil {
				return e.pivotMayCome(ctx, s, now)
			}
			if noteErr := e.blockjob.NoteRun(ctx, r, s, to, disk); noteErr != nil {
				return noteErr
			}
		}
		if lookErr == nil && now.Active && now.Live == s.Before() && now.Mirror == nil {
			return look.JobEndedEarly(s, to.Image(s)) // the job is gone
		}
		return e.look.GuestError(ctx, s, err)
	}
	observe := func(ctx context.Context, r *op.Run, s *move.Spec) (op.Observation, error) {
		disk, err := e.pause.ConfirmDiskInPause(ctx, r, s)
		if err != nil {
			return op.Unknown, err
		}
		switch {
		case disk.Mirror != nil && disk.Mirror.Ending:
			return op.Unknown, op.WaitFor(request.WaitHypervisor, api.Errorf(api.CodeInstanceBusy, "the switch to %s is under way", to.Image(s).Path))
		case !disk.Active && disk.Config == to.End, disk.Active && disk.Live == to.End && disk.Mirror == nil:
			return op.Done, e.endHasAll(ctx, r, s, to, disk)
		case disk.Active && disk.Live == s.Before(), !disk.Active && disk.Config == s.Before():
			if move.InBackground(s, to) {
				err = e.overlayHasAll(ctx, r, s, to, disk)
			}
			return op.NotDone, err
		}
		return op.Unknown, op.UnknownOutcome(look.ChainChanged(s, disk))
	}
	return seal.Provided(move.Step(PivotStep, do, nil, observe), e.seal.EndUnchangedInPause(to))
}

// nameTakenBack returns an error because another program has changed the definition since
// StepNameEnd: a pivot requires that the definition names dst.
func nameTakenBack(s *move.Spec, to move.Direction, disk *move.DiskState) error {
	if err := look.MayName(disk, s, to); err != nil {
		return err
	}
	return &move.WorldChangedError{What: fmt.Sprintf("the definition of instance %s was changed back by somebody while its disk was being switched", s.InstanceName)}
}

// pivotMayCome stops an op if its guest may move to dst at any moment: libvirtd died in the pivot,
// and refuses another pivot while the job exists, since it has attached the base images and cannot
// attach them again. QEMU may have received the pivot, and be flushing dst. A resumed guest would
// write to dst, and no definition would name dst.
func (e *Env) pivotMayCome(ctx context.Context, s *move.Spec, disk *move.DiskState) error {
	open, err := e.look.OpenImages(ctx, s)
	if err != nil {
		return err
	}
	return op.UnknownOutcome(look.Disagreement(s, disk, open))
}
