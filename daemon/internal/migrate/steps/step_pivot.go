// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepNameEnd makes the persistent XML name dst before the switch, while the
// guest is paused and both chains read the same: whatever dies now, either name
// is right. It stays right if somebody resumes the guest before the switch, since
// the mirror writes to both.
func (e *Env) stepNameEnd(to direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return err
		}
		if !disk.active {
			return guestIsOff(s)
		}
		if err := disk.mayName(s, to); err != nil {
			return err
		}
		switch mirror, err := disk.mirrorTo(to, s); {
		case err != nil:
			return err
		case mirror == nil && disk.live != to.end: // it is another process by now, whose writes dst does not get
			return jobEndedEarly(s, to.image(s))
		}
		if err := e.noteRun(ctx, r, s, disk); err != nil {
			return err
		}
		return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, to.chain(s)))
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		disk, err := e.confirmDiskInPause(ctx, r, s)
		if err != nil {
			return err
		}
		switch {
		case disk.config == s.Before() && !disk.active:
			return e.guards.Clear(s.InstanceID, s.Owner()) // of a daemon that died behind the change
		case disk.config == s.Before() && disk.live == s.Before():
			return nil
		case disk.active && disk.live == s.Before() && disk.config == to.end:
			return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.beforeChain()))
		case disk.active && disk.live == s.Before():
			// It is somebody else's XML. The guest, which is paused, is where it was.
			return nil
		case disk.config == to.end:
			// The process died after the XML had named the end: the instance may have
			// been started from there since.
			return e.underGuard(s, "taking back", func() error { return e.unnameEnd(ctx, r, s) })
		}
		return op.UnknownOutcome(chainChanged(s, disk))
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(disk.config == to.end), nil
	}
	return provided(step(to.nameStep(), do, undo, observe), e.endUnchangedInPause(to))
}

// stepNameLeft makes the persistent XML name the end, after the switch: a commit, and a copy in the
// background, do not write to both, so the XML names the overlay as long as the guest may write to it.
// libvirt has changed the name with the switch; this step makes sure. If somebody else has
// changed the XML, the paused guest does not wait for that: stepSettle reports it. Left is the error for a disk that
// is on the overlay, or would be with the next start.
func (e *Env) stepNameLeft(to direction, left func(*Spec, *diskState) *api.Error) op.Step {
	named := func(disk *diskState) bool {
		return disk.config == to.end || disk.config != OnOverlay && disk.active && disk.live == to.end
	}
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		disk, err := e.confirmDiskInPause(ctx, r, s)
		switch {
		case err != nil:
			return err
		case named(disk) && !disk.active:
			return e.guards.Clear(s.InstanceID, s.Owner()) // of a daemon that died behind the change
		case named(disk):
			return nil
		case disk.config == OnOverlay && !disk.active && to.end == OnDst:
			return e.underGuard(s, "going on with", func() error { return e.nameDstOfOff(ctx, r, s) })
		case disk.config == OnOverlay && (!disk.active || disk.live == OnOverlay):
			return op.UnknownOutcome(left(s, disk))
		case !disk.active || disk.live != to.end:
			return op.UnknownOutcome(chainChanged(s, disk))
		}
		return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, to.chain(s)))
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		disk, err := e.readDisk(ctx, s)
		if err != nil || !named(disk) || disk.active {
			return op.DoneIf(err == nil && named(disk)), err
		}
		guarded, err := e.guards.Has(s.InstanceID, s.Owner())
		return op.DoneIf(!guarded), err
	}
	return step(to.nameStep(), do, nil, observe)
}

// nameDstOfOff has the definition of a guest that went off behind the pivot name dst. On a host where the guard hook does not
// work it may be started on the overlay meanwhile, and what it writes then is there alone.
func (e *Env) nameDstOfOff(ctx context.Context, r *op.Run, s *Spec) error {
	if err := e.dstHasAll(ctx, r, s); err != nil {
		return err
	}
	if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.DstChain()); err != nil {
		return e.hvError(err)
	}
	err := e.renameIfStarted(ctx, s, toDst)
	if started := (*errWorldChanged)(nil); errors.As(err, &started) {
		return op.Retry(request.BusyDelay, err) // its overlay is looked at again
	}
	return err
}

// dstHasAll refuses, behind the pivot, to name dst for a guest that went off and whose definition names the overlay
// still. From the pivot on dst has all, and more by a guest that somebody has resumed; so it is right unless the overlay
// was written since, by a start of the instance on it. Then both have to read the same.
func (e *Env) dstHasAll(ctx context.Context, r *op.Run, s *Spec) error {
	var note runNote
	if _, err := r.Noted(pivotStep, &note); err != nil {
		return err
	}
	before, err := e.images.Stamp(ctx, s.top())
	if err != nil || !before.WrittenSince(note.Top) {
		return err
	}
	if err := e.sameInBoth(ctx, s, toDst); err != nil {
		return err
	}
	after, err := e.images.Stamp(ctx, s.top())
	if err == nil && after.WrittenSince(before) {
		err = op.Retry(request.BusyDelay, eitherHasMore(s, toDst))
	}
	return err
}

// pivotRetry is how long to wait when QEMU says that the job is not ready.
const pivotRetry = 5 * time.Millisecond

// stepPivot makes the end the running guest's disk. It is the commit point. If
// the process died in the window and the persistent XML names the end, there is
// nothing left to switch: the paused guest's last write is in both chains.
func (e *Env) stepPivot(to direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return err
		}
		switch {
		case disk.active && disk.live == to.end, !disk.active && disk.config == to.end:
			return nil
		case !disk.active:
			return guestIsOff(s)
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
			if disk.config == to.end { // by somebody else, and would count as a pivot that was made
				if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.beforeChain()); err != nil {
					return e.hvError(err)
				}
			}
			if _, err := r.Noted(pivotStep, &before); err != nil {
				return err
			}
			if err := e.noteAsked(ctx, r, s, to, disk); err != nil { // see overlayHasAll, dstHasAll
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
			if noteErr := e.noteRun(ctx, r, s, disk); noteErr != nil {
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
			if err := e.notResumedByHand(ctx, r, s, to, disk); err != nil {
				return op.Unknown, err
			}
			if !disk.active && inBackground(s, to) {
				err = e.endWasReached(ctx, r, s, to)
			}
			return op.Done, err
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

// endWasReached refuses to take a pivot of a job in the background for made, by the name of the end in the definition of a guest
// that is off, where libvirt was never asked for it: somebody has named the end, and the overlay may have more.
func (e *Env) endWasReached(ctx context.Context, r *op.Run, s *Spec, to direction) error {
	var note runNote
	if _, err := r.Noted(pivotStep, &note); err != nil {
		return err
	}
	if note.Asked {
		return e.guards.Clear(s.InstanceID, s.ChainOwner()) // of a comparison that was cut off
	}
	return e.sameInBoth(ctx, s, to)
}

// overlayHasAll refuses to take a pivot of a job in the background for not made, by the name of the overlay in the definition
// of a guest that went off, where libvirt was asked for it and has not answered: QEMU may have made it, and somebody may have
// resumed the guest, which wrote to the end alone then. An end that is as it was when libvirt was asked was written by nobody.
// Else both have to read the same, or an operator decides: QEMU writes there as well, in the pivot and as it ends.
func (e *Env) overlayHasAll(ctx context.Context, r *op.Run, s *Spec, to direction, disk *diskState) error {
	var note runNote
	if _, err := r.Noted(pivotStep, &note); err != nil || !note.Asked {
		return err
	}
	top, err := e.images.Stamp(ctx, s.top())
	if err != nil || disk.active && disk.dom.Run == note.Run && !top.RebootedSince(note.Top) { // libvirt counts anew with a boot
		return err
	}
	if as, err := e.asItWasAsked(ctx, s, to, note); err != nil || as {
		return err
	}
	if disk.active {
		return op.UnknownOutcome(eitherHasMore(s, to))
	}
	if err := e.sameInBoth(ctx, s, to); err != nil {
		return err
	}
	return e.noteRun(ctx, r, s, disk)
}

// asItWasAsked says whether the end of a direction is known not to have been written since libvirt was asked for the pivot by
// a note, if it was.
func (e *Env) asItWasAsked(ctx context.Context, s *Spec, to direction, note runNote) (bool, error) {
	end := to.image(s).Path
	if !note.Asked || api.IsNetwork(end) {
		return !note.Asked, nil
	}
	now, err := e.images.Stamp(ctx, end)
	if err != nil {
		return false, err
	}
	forgotten := now.Device && (now.RebootedSince(note.End) || now.Sectors < note.End.Sectors)
	return !forgotten && !now.WrittenSince(note.End), nil
}

// sameInBoth makes sure that the overlay and the end of a direction, of which each may have what the other lacks, read the same.
// Until then the instance, which is off, does not start.
func (e *Env) sameInBoth(ctx context.Context, s *Spec, to direction) error {
	if err := e.guards.Set(s.InstanceID, s.ChainOwner(), mayLack(s)); err != nil {
		return err
	}
	if !e.mayTakeLong(ctx, s) {
		return op.UnknownOutcome(eitherHasMore(s, to))
	}
	ctx, cancel := e.untilFenced(ctx, s)
	defer cancel(nil)
	err := e.copier.Compare(ctx, s.beforeChain(), to.chain(s), s.beforeBytes(), func(p Progress) { e.progress.set(s.MigrationID, p) })
	if api.CodeOf(err) == api.CodeCopyMismatch {
		return op.UnknownOutcome(eitherHasMore(s, to))
	}
	if api.CodeOf(err) == api.CodeIOError { // which a second reading of all does not mend
		return op.UnknownOutcome(api.Errorf(api.CodeIOError, "%v; what instance %s wrote last may be in %s or in %s, which are compared before one is written over the other: mend the storage and call again",
			err, s.InstanceName, to.image(s).Path, s.top()))
	}
	if err != nil {
		return e.hvError(err)
	}
	return e.guards.Clear(s.InstanceID, s.ChainOwner())
}

const pivotStep = "pivot"

// pivotMayCome stops an op whose guest may go over to dst at any moment: libvirt was asked for the pivot before it died, and
// refuses it now, with the job still there. It has attached the base images the first time, and cannot once more; QEMU may have
// been told of the pivot, and flush dst yet. A guest that was resumed would write to dst, of which no definition knows.
func (e *Env) pivotMayCome(ctx context.Context, s *Spec, disk *diskState) error {
	open, err := e.openImages(ctx, s)
	if err != nil {
		return err
	}
	return op.UnknownOutcome(disagreement(s, disk, open))
}

// stepSettle makes sure, with the guest running again, that no definition names the chain
// that was left, and that the guest's process has closed it.
func (e *Env) stepSettle(to direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		e.progress.clear(s.MigrationID)
		if err := e.liftThrottle(ctx, r, s); err != nil {
			return err
		}
		left, err := e.endWriteLimits(ctx, s)
		if err != nil {
			return err
		}
		if left != "" {
			if err := r.SetOutput(remarkOutput{left}); err != nil {
				return err
			}
		}
		disk, err := e.confirmDisk(ctx, s)
		if err != nil {
			return err
		}
		// Whatever else is there now may hold newer writes.
		if (disk.config != to.end && disk.config != s.Before()) || (disk.active && disk.live != to.end) {
			return op.UnknownOutcome(chainChanged(s, disk))
		}
		if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, to.chain(s)); err != nil {
			return e.hvError(err)
		}
		if err := e.endHasItsName(ctx, s, to); err != nil {
			return err
		}
		// Before anything goes of which the end is a copy: with some cache modes QEMU
		// leaves flushes out.
		if err := e.images.Flush(ctx, to.image(s).Path); err != nil {
			return op.Retry(request.BusyDelay, err)
		}
		if to.end == OnDst {
			if disk.active {
				if err := e.assertClosed(ctx, s, s.Src.Path); err != nil {
					return err
				}
			}
			e.giveBackSrcRights(ctx, s) // which no definition names any more
		}
		if !disk.active || s.Overlay == "" {
			return nil
		}
		return e.assertClosed(ctx, s, s.Overlay)
	}
	return step("settle", do, nil, nil)
}

// assertClosed waits until the guest's process has closed an image.
func (e *Env) assertClosed(ctx context.Context, s *Spec, path string) error {
	files, err := e.hv.OpenFiles(ctx, s.InstanceID, path)
	if err != nil {
		return op.Retry(frozenRetry, err)
	}
	if len(files) > 0 {
		return op.Retry(frozenRetry, api.Errorf(api.CodeInstanceBusy, "instance %s still has %s open", s.InstanceName, path))
	}
	return nil
}

// notResumedByHand refuses to take the switch for done because the definition names dst, if
// the guest was resumed by hand while the daemon was dead, wrote, and the host went down: a
// synchronous job writes to both images, but a flush of the guest reaches the overlay alone,
// so what was flushed last may be in the overlay only.
func (e *Env) notResumedByHand(ctx context.Context, r *op.Run, s *Spec, to direction, disk *diskState) error {
	var note runNote
	noted, err := r.Noted(toDst.nameStep(), &note)
	if err != nil || !noted || to.end != OnDst {
		return err
	}
	now, err := e.images.Stamp(ctx, s.top())
	if err != nil || !now.RebootedSince(note.Top) || !now.WrittenSince(note.Top) {
		return err
	}
	return op.UnknownOutcome(resumedByHand(s, disk.active))
}
