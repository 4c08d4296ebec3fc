// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// pivotRetry is how long to wait when QEMU reports that the job is not ready.
const pivotRetry = 5 * time.Millisecond

// stepPivot makes the end the disk of the running guest. It is the commit point. If the process
// ended in the pause and the definition names the end, no pivot is needed: both chains have the
// last write of the paused guest.
func (e *Env) stepPivot(to direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return err
		}
		switch {
		case disk.active && disk.live == to.end, !disk.active && disk.config == to.end:
			return nil // Observe checks which writes the end has
		case !disk.active:
			return guestIsOff(s)
		case !inBackground(s, to) && disk.config != to.end:
			return nameTakenBack(s, to, disk)
		}
		clean, err := e.drained(ctx, s, to, disk)
		if err != nil {
			return err
		}
		if !clean {
			return op.Retry(pivotRetry, api.Errorf(api.CodeInstanceBusy, "the fold into %s is not clean yet", to.image(s).Path))
		}
		background := inBackground(s, to)
		var before runNote
		if background {
			if disk.config == to.end { // named by another program, and would count as a completed pivot
				if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.beforeChain()); err != nil {
					return e.hvError(err)
				}
			}
			if _, err := r.Noted(pivotStep, &before); err != nil {
				return err
			}
			if err := e.noteAsked(ctx, r, s, to, disk, before); err != nil { // see overlayHasAll, dstHasAll
				return err
			}
		}
		err = e.hv.Pivot(ctx, s.InstanceID, s.Target)
		if err == nil {
			return nil
		}
		now, lookErr := e.confirmDiskInPause(ctx, r, s)
		if background && !errors.Is(err, hv.ErrUnavailable) && (lookErr != nil || !now.active || now.live != to.end) {
			if to.end == OnDst && before.Asked && before.Run == disk.dom.Run && lookErr == nil && now.mirror != nil {
				return e.pivotMayCome(ctx, s, now)
			}
			if noteErr := e.noteRun(ctx, r, s, to, disk); noteErr != nil {
				return noteErr
			}
		}
		if lookErr == nil && now.active && now.live == s.Before() && now.mirror == nil {
			return jobEndedEarly(s, to.image(s)) // it is another process by now
		}
		return e.guestError(ctx, s, err)
	}
	observe := func(ctx context.Context, r *op.Run, s *Spec) (op.Observation, error) {
		disk, err := e.confirmDiskInPause(ctx, r, s)
		if err != nil {
			return op.Unknown, err
		}
		switch {
		case disk.mirror != nil && disk.mirror.Ending:
			return op.Unknown, op.WaitFor(request.WaitHypervisor, api.Errorf(api.CodeInstanceBusy, "the switch to %s is under way", to.image(s).Path))
		case !disk.active && disk.config == to.end, disk.active && disk.live == to.end && disk.mirror == nil:
			return op.Done, e.endHasAll(ctx, r, s, to, disk)
		case disk.active && disk.live == s.Before(), !disk.active && disk.config == s.Before():
			if inBackground(s, to) {
				err = e.overlayHasAll(ctx, r, s, to, disk)
			}
			return op.NotDone, err
		}
		return op.Unknown, op.UnknownOutcome(chainChanged(s, disk))
	}
	return provided(step(pivotStep, do, nil, observe), e.endUnchangedInPause(to))
}

// nameTakenBack ends an op when the definition no longer names the end, as is required before a
// pivot: another program has changed it since stepNameEnd.
func nameTakenBack(s *Spec, to direction, disk *diskState) error {
	if err := disk.mayName(s, to); err != nil {
		return err
	}
	return &errWorldChanged{fmt.Sprintf("the definition of instance %s was changed back by somebody while its disk was being switched", s.InstanceName)}
}

// pivotMayCome stops an op with a guest that may move to dst at any moment: libvirtd was asked for
// the pivot and died, and refuses it now, while the job exists. It attached the base images the
// first time and cannot attach them again; QEMU may have received the pivot, and be flushing dst. A
// guest that was resumed would write to dst, and no definition would name dst.
func (e *Env) pivotMayCome(ctx context.Context, s *Spec, disk *diskState) error {
	open, err := e.openImages(ctx, s)
	if err != nil {
		return err
	}
	return op.UnknownOutcome(disagreement(s, disk, open))
}
