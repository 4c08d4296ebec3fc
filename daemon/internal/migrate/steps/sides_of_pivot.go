// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// On which side of the pivot a guest was that went off or has another process: the two images may
// differ then.

const pivotStep = "pivot"

// endHasAll refuses to take a switch for made because the definition, or the process, has the end,
// where the image that was left may have what the end lacks.
func (e *Env) endHasAll(ctx context.Context, r *op.Run, s *Spec, to direction, disk *diskState) error {
	if inBackground(s, to) {
		if disk.active {
			return nil
		}
		return e.endWasReached(ctx, r, s, to)
	}
	var note runNote
	noted, err := r.Noted(toDst.nameStep(), &note)
	if err != nil || !noted || to.end != OnDst {
		return err
	}
	now, err := e.images.Stamp(ctx, s.top())
	switch {
	case err != nil:
		return err
	case !now.WrittenSince(note.Top):
		if disk.active {
			return nil
		}
		// Nobody has written to the image that was left. But QEMU flushes the end as it suspends
		// the guest, and in the pivot: if that failed QEMU alone was told, and it may have ended
		// before it could say so.
		return e.sameInBoth(ctx, s, to)
	case now.RebootedSince(note.Top):
		// Somebody has resumed the guest while the daemon was dead. A synchronous job writes to
		// both images, but a flush of the guest reaches the image alone that it was to leave.
		return op.UnknownOutcome(resumedByHand(s, disk.active))
	case disk.active && disk.dom.Run == note.Run:
		return nil // whose job wrote to both
	case disk.active:
		return op.UnknownOutcome(eitherHasMore(s, to))
	}
	// Either that, or the process that was paused died before the definition was changed, and
	// another has written to the image that was to be left.
	return e.sameInBoth(ctx, s, to)
}

// dstHasAll refuses, behind the pivot, to name dst for a guest that went off and whose definition
// names the overlay still. From the pivot on dst has all, and more by a guest that somebody has
// resumed; so it is right unless the overlay was written since, by a start of the instance on it.
// Then both have to read the same.
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

// overlayHasAll refuses to take a pivot of a job in the background for not made, by the name of the
// overlay in the definition of a guest that went off, where libvirt was asked for it and has not
// answered: QEMU may have made it, and somebody may have resumed the guest, which wrote to the end
// alone then. An end that is as it was when libvirt was asked was written by nobody. Else both have
// to read the same, or an operator decides: QEMU writes there as well, in the pivot and as it ends.
func (e *Env) overlayHasAll(ctx context.Context, r *op.Run, s *Spec, to direction, disk *diskState) error {
	var note runNote
	if _, err := r.Noted(pivotStep, &note); err != nil || !note.Asked {
		return err
	}
	top, err := e.images.Stamp(ctx, s.top())
	if err != nil || disk.active && disk.dom.Run == note.Run && !top.RebootedSince(note.Top) { // libvirt counts anew with a boot
		return err
	}
	if untouched, err := e.untouchedSinceAsked(ctx, s, to, note); err != nil || untouched {
		return err
	}
	if disk.active {
		return op.UnknownOutcome(eitherHasMore(s, to))
	}
	if err := e.sameInBoth(ctx, s, to); err != nil {
		return err
	}
	return e.noteRun(ctx, r, s, to, disk)
}

// endWasReached refuses to take a pivot of a job in the background for made, by the name of the end
// in the definition of a guest that is off, where libvirt was never asked for it: somebody has
// named the end, and the overlay may have more.
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

// untouchedSinceAsked reports whether the end of a direction is known not to have been written
// since libvirt was asked for the pivot. It is true if libvirt was not asked, by the note.
func (e *Env) untouchedSinceAsked(ctx context.Context, s *Spec, to direction, note runNote) (bool, error) {
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

// sameInBoth makes sure that the overlay and the end of a direction, of which each may have what
// the other lacks, read the same. Until then the instance, which is off, does not start.
func (e *Env) sameInBoth(ctx context.Context, s *Spec, to direction) error {
	if err := e.guards.Set(s.InstanceID, s.ChainOwner(), mayLack(s)); err != nil {
		return err
	}
	if !e.mayTakeLong(ctx, s) {
		return op.UnknownOutcome(eitherHasMore(s, to))
	}
	err := e.compareUntilFenced(ctx, s, to.chain(s))
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
