// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// These functions find out whether a guest that went off or restarted had left the old image in
// the pivot, when the old and the new image may differ. The new image, the end of the switch, is
// dst, or src for a cancel.

// PivotStep is the name of StepPivot.
const PivotStep = "pivot"

// endHasAll returns an error if the old image may have writes that the pivot's new image lacks,
// although the definition or the process already has the new image.
func (e *Env) endHasAll(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction, disk *move.DiskState) error {
	if move.InBackground(s, to) {
		if disk.Active {
			return nil
		}
		return e.endWasReached(ctx, r, s, to)
	}
	var note blockjob.RunNote
	noted, err := r.Noted(NameDstStep, &note)
	if err != nil || !noted || to.End != move.OnDst {
		return err
	}
	now, err := e.images.Stamp(ctx, s.Top())
	switch {
	case err != nil:
		return err
	case !now.WrittenSince(note.Top):
		if disk.Active {
			return nil
		}
		// The old image was not written. But QEMU flushes dst when it suspends the guest and
		// in the pivot, and may have died before it could report a failed flush.
		return e.storedInEnd(ctx, s, to)
	case now.RebootedSince(note.Top):
		// The guest was resumed while the daemon was dead. A synchronous job writes to both
		// images, but the guest's flush reaches only the old image.
		return op.UnknownOutcome(resumedByHand(s, disk.Active))
	case disk.Active && disk.Dom.Run == note.Run:
		return nil // its job wrote to both
	case disk.Active:
		return op.UnknownOutcome(look.EitherHasMore(s, to))
	}
	// The guest was resumed while the daemon was dead, or the paused process died before the
	// definition was changed, and a new process has written to the old image.
	return e.storedInEnd(ctx, s, to)
}

// dstHasAll returns an error unless dst has all writes of a guest that is off after the pivot,
// with the overlay in its definition. dst has them unless the instance was started on the overlay
// and wrote there; then both images must read the same.
func (e *Env) dstHasAll(ctx context.Context, r *op.Run, s *move.Spec) error {
	var note blockjob.RunNote
	if _, err := r.Noted(PivotStep, &note); err != nil {
		return err
	}
	before, err := e.images.Stamp(ctx, s.Top())
	if err != nil || !before.WrittenSince(note.Top) {
		return err
	}
	if err := e.sameInBoth(ctx, s, move.ToDst); err != nil {
		return err
	}
	after, err := e.images.Stamp(ctx, s.Top())
	if err == nil && after.WrittenSince(before) {
		err = op.Retry(request.BusyDelay, look.EitherHasMore(s, move.ToDst))
	}
	return err
}

// overlayHasAll returns nil if an unanswered pivot of a background job may count as not done,
// since the overlay has all writes. QEMU may have pivoted, and the guest, resumed by another
// program, may have written only to the new image. A new image that is unchanged since libvirt was
// asked excludes that. Otherwise both images must read the same, or an operator decides: QEMU
// writes to the new image also in the pivot and when it ends.
func (e *Env) overlayHasAll(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction, disk *move.DiskState) error {
	var note blockjob.RunNote
	if _, err := r.Noted(PivotStep, &note); err != nil || !note.Asked {
		return err
	}
	top, err := e.images.Stamp(ctx, s.Top())
	if err != nil || disk.Active && disk.Dom.Run == note.Run && !top.RebootedSince(note.Top) { // libvirt counts runs since the boot
		return err
	}
	if untouched, err := e.untouchedSinceAsked(ctx, s, to, note); err != nil || untouched {
		return err
	}
	if disk.Active {
		return op.UnknownOutcome(look.EitherHasMore(s, to))
	}
	if err := e.sameInBoth(ctx, s, to); err != nil {
		return err
	}
	return e.blockjob.NoteRun(ctx, r, s, to, disk)
}

// endWasReached checks a definition that names the image that a background job pivots to, for a
// guest that is off. If libvirt was never asked for the pivot, another program has changed the
// definition, and the overlay may have more.
func (e *Env) endWasReached(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction) error {
	var note blockjob.RunNote
	if _, err := r.Noted(PivotStep, &note); err != nil {
		return err
	}
	if note.Asked {
		return e.guards.Clear(s.InstanceID, ChainOwner(s)) // of an interrupted comparison
	}
	return e.storedInEnd(ctx, s, to)
}

// untouchedSinceAsked reports whether libvirt was not asked for the pivot, or the pivot's new
// image is known to be unwritten since.
func (e *Env) untouchedSinceAsked(ctx context.Context, s *move.Spec, to move.Direction, note blockjob.RunNote) (bool, error) {
	if !note.Asked || !to.Kind(s).Witnessed {
		return !note.Asked, nil
	}
	now, err := e.images.Stamp(ctx, to.Image(s).Path)
	if err != nil {
		return false, err
	}
	forgotten := now.Device && (now.RebootedSince(note.End) || now.Sectors < note.End.Sectors)
	return !forgotten && !now.WrittenSince(note.End), nil
}

// sameInBoth makes sure that the overlay and the pivot's new image read the same. Until then a
// guard keeps the instance off.
func (e *Env) sameInBoth(ctx context.Context, s *move.Spec, to move.Direction) error {
	return e.underChainGuard(ctx, s, to, func() error { return e.move.CompareUntilFenced(ctx, s, to.Chain(s)) })
}

// storedInEnd is sameInBoth for a new image that is used from now on without another fold, and
// that QEMU may not have flushed.
func (e *Env) storedInEnd(ctx context.Context, s *move.Spec, to move.Direction) error {
	return e.underChainGuard(ctx, s, to, func() error { return e.blockjob.SameAndStored(ctx, s, to) })
}

func (e *Env) underChainGuard(ctx context.Context, s *move.Spec, to move.Direction, compare func() error) error {
	if err := e.guards.Set(s.InstanceID, ChainOwner(s), mayLack(s)); err != nil {
		return err
	}
	if !e.move.MayTakeLong(ctx, s) {
		return op.UnknownOutcome(look.EitherHasMore(s, to))
	}
	err := compare()
	if api.CodeOf(err) == api.CodeCopyMismatch {
		return op.UnknownOutcome(look.EitherHasMore(s, to))
	}
	if api.CodeOf(err) == api.CodeIOError { // a second reading would not help
		return op.UnknownOutcome(api.Errorf(api.CodeIOError, "%v; what instance %s wrote last may be in %s or in %s, which are compared before one is written over the other: mend the storage and call again",
			err, s.InstanceName, to.Image(s).Path, s.Top()))
	}
	if err != nil {
		return e.move.HVError(err)
	}
	return e.guards.Clear(s.InstanceID, ChainOwner(s))
}
