// SPDX-License-Identifier: Apache-2.0

package blockjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// A failed flush reports lost writes only once (image.NotStoredError): the next flush succeeds,
// and proves nothing. Proof is a new write of the data, by another job, or a comparison of both
// images.

// QEMUFlushes reports whether QEMU flushes the writes of the disk's job, by the disk's cache mode.
// Then the kernel reports lost writes also to QEMU, and the job fails. The cache mode of a guest
// that is off is the definition's.
func QEMUFlushes(d *move.DiskState, s *move.Spec) bool {
	disk := cmp.Or(d.Dom.LiveDisk(s.Target), d.Dom.ConfigDisk(s.Target))
	return disk == nil || disk.Cache != hv.CacheUnsafe
}

// FlushBeforeSwitch flushes, with the guest running, the images that QEMU would flush with the
// guest paused: all disks in a suspend, and the job's target in the pivot.
func (e *Env) FlushBeforeSwitch(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction) error {
	if err := e.move.MayPause(); err != nil {
		return err
	}
	var note move.PauseNote
	if _, err := r.Noted(move.ToSwitch.Begin, &note); err != nil {
		return err
	}
	if note.Flushing {
		return FlushUnanswered(s, to, HeldUp)
	}
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil || disk.Dom.State != hv.StateRunning {
		return err // no guest waits for a flush
	}
	if err := e.move.FlushEarly(ctx, s, s.Top()); err != nil {
		if s.Method == move.MethodMirror {
			return srcNotStored(s, err)
		}
		return lostUnderJob(s, to, err)
	}
	keep := func(flushing bool) error {
		note.Early, note.Flushing = true, flushing
		return r.Note(ctx, note)
	}
	if err := e.flushEnd(ctx, s, to, disk, e.images.Flush, keep); err != nil || !note.Flushing {
		return err
	}
	return keep(false) // remember the outcome while the op waits for the pause
}

// FlushInPause flushes the job's target: after the pivot the job's writes cannot be repeated. It
// does nothing if QEMU flushes the target in the pivot, or if the target is an NBD export or RBD
// image: no server is asked with the guest paused.
func (e *Env) FlushInPause(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction, disk *move.DiskState) error {
	if QEMUFlushes(disk, s) || !to.Kind(s).Witnessed {
		return nil
	}
	err := e.flushEnd(ctx, s, to, disk, e.flushInTime, func(flushing bool) error { return r.Note(ctx, move.FlushingNote{Flushing: flushing}) })
	if errors.Is(err, errFlushTakesLong) {
		return FlushUnanswered(s, to, pausedTooLong)
	}
	return err
}

var errFlushTakesLong = errors.New("the flush takes too long")

// flushInTime flushes an image with the guest paused. After DrainBound it abandons the flush, and
// does not get the flush's result.
func (e *Env) flushInTime(ctx context.Context, path string) error {
	flushed := make(chan error, 1)
	flushCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { flushed <- e.images.Flush(flushCtx, path) }()
	bound := time.NewTimer(move.DrainBound)
	defer bound.Stop()
	select {
	case err := <-flushed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-bound.C:
		return errFlushTakesLong
	}
}

// flushEnd flushes a job's target. If QEMU does not flush the target, the callback keep first
// stores that the outcome is unknown: a later flush would not report the lost writes again.
func (e *Env) flushEnd(ctx context.Context, s *move.Spec, to move.Direction, disk *move.DiskState, flush func(context.Context, string) error, keep func(flushing bool) error) error {
	alone := !QEMUFlushes(disk, s)
	if alone {
		if err := keep(true); err != nil {
			return err
		}
	}
	end := to.Image(s).Path
	err := flush(ctx, end)
	switch {
	case err == nil:
		return nil
	case move.NotStored(err):
		if !alone {
			if err := keep(true); err != nil {
				return err
			}
		}
		return endNotStored(s, err)
	case errors.Is(err, errFlushTakesLong), ctx.Err() != nil:
		return err
	}
	e.move.NotFlushedEarly(s, end, err)
	if alone {
		return keep(false)
	}
	return nil
}

// endNotStored returns the error for a failed flush of the job's target before the pivot. The
// guest's present image may have lost writes as well.
func endNotStored(s *move.Spec, err error) error {
	goesOn := "call again, which writes all of it again"
	if s.Method == move.MethodMirror {
		goesOn = "migrate it again"
	}
	return api.Errorf(api.CodeIOError, "%v; instance %s was not switched there, and goes on where it was: mend the storage and %s", err, s.InstanceName, goesOn)
}

// srcNotStored returns the error that stops a mirror for the operator before its switch, with
// guest and job running: dst may be the only image with the writes that src could not store, and a
// cancelled mirror deletes dst.
func srcNotStored(s *move.Spec, err error) error {
	return op.UnknownOutcome(api.Errorf(api.CodeIOError, "%v: that is what was written to volume %s last; %s has what the guest has written since the mirror began, and may lack what was lost before: "+
		"mend the storage; `%s` goes on to %[3]s, and `%s` stays at %[6]s and deletes %[3]s", err, s.VolumeName, s.Dst.Path,
		shell.Line("volferryctl", "migration", "complete", s.MigrationID), shell.Line("volferryctl", "migration", "cancel", s.MigrationID), s.Src.Path))
}

// lostUnderJob returns the error if the guest's present image lost writes before a switch. A
// synchronous job has written them to dst too, and a repeated complete op continues with that job.
// With another job, or for a mirror that has paused its guest, the error is LostByGuest.
func lostUnderJob(s *move.Spec, to move.Direction, err error) error {
	if !move.NotStored(err) || to.End != move.OnDst || move.InBackground(s, to) || s.Method == move.MethodMirror {
		return move.LostByGuest(s, err)
	}
	return api.Errorf(api.CodeIOError, "%v: that is what was written to volume %s last; the memory of this host has it for a while, and so has %s as long as the block job on disk %s of instance %s is at work: mend the storage and complete again, "+
		"which goes on to %s; a cancel, or a complete with the instance off, goes on with what is stored", err, s.VolumeName, s.Dst.Path, s.Target, s.InstanceName, s.Dst.Path)
}

// HeldUp is the reason why a repeated step does not know the result of its earlier flush.
const HeldUp = "volferryd ended or was held up"

var pausedTooLong = fmt.Sprintf("the guest was paused for %s", move.DrainBound)

// FlushUnanswered returns the error that ends an op because the result of the flush of the job's
// target is unknown.
func FlushUnanswered(s *move.Spec, to move.Direction, why string) error {
	what := unanswered(s, to, why)
	if s.Method == move.MethodMirror {
		return endNotStored(s, errors.New(what))
	}
	return &move.WorldChangedError{What: what}
}

func unanswered(s *move.Spec, to move.Direction, why string) string {
	return fmt.Sprintf("%s while %s was flushed, and nobody knows whether it has stored what was written to it", why, to.Image(s).Path)
}

// EndNotStored reports whether dst may lack writes of the running job, because a flush has failed.
// Then another job must replace it.
func (e *Env) EndNotStored(ctx context.Context, s *move.Spec) (bool, error) {
	return e.history.EndNotStored(ctx, s)
}

// jobIsWhole refuses to adopt a job with lost writes: the next op begins another job.
func (e *Env) jobIsWhole(ctx context.Context, s *move.Spec) error {
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil || disk.Ours(move.ToDst, s) == nil {
		return err
	}
	lost, err := e.history.EndNotStored(ctx, s)
	if err == nil && lost {
		err = &move.WorldChangedError{What: fmt.Sprintf("%s may lack what the job on disk %s of instance %s has written to it, so another job has to be begun", s.Dst.Path, s.Target, s.InstanceName)}
	}
	return err
}

// HearOfLostWrites flushes dst before another job writes all of it again. If the previous job lost
// writes after its failed flush, Linux would otherwise report them to the new job's flush.
func (e *Env) HearOfLostWrites(ctx context.Context, s *move.Spec) {
	if err := e.images.Flush(ctx, s.Dst.Path); err != nil {
		e.log.Info("dst lacks more of what the job before has written; the next job writes all of it", "migration", s.MigrationID, "dst", s.Dst.Path, "err", err)
	}
}

// SettleStep is the name of StepSettle of package overlay.
const SettleStep = "settle"

type settledNote struct {
	NotStored string `json:"not_stored,omitempty"`
	move.FlushingNote
}

// EndIsStored flushes the guest's new image before the old images are removed: with some cache
// modes QEMU does not flush it. After a failed flush only a comparison proves that the image is
// stored. If QEMU does not flush the image, EndIsStored first stores that the outcome is unknown: a
// later flush would not report the lost writes again.
func (e *Env) EndIsStored(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction, disk *move.DiskState) error {
	var note settledNote
	if _, err := r.Noted(SettleStep, &note); err != nil {
		return err
	}
	if note.NotStored == "" && note.Flushing {
		note.NotStored = unanswered(s, to, HeldUp)
	}
	if note.NotStored != "" {
		return e.sameAsLeft(ctx, s, to, disk, note)
	}
	alone := !QEMUFlushes(disk, s)
	if alone {
		if err := r.Note(ctx, settledNote{FlushingNote: move.FlushingNote{Flushing: true}}); err != nil {
			return err
		}
	}
	err := e.images.Flush(ctx, to.Image(s).Path)
	if move.NotStored(err) {
		note.NotStored = err.Error()
		if err := r.Note(ctx, note); err != nil {
			return err
		}
		return e.sameAsLeft(ctx, s, to, disk, note)
	}
	if alone && ctx.Err() == nil {
		if err := r.Note(ctx, settledNote{}); err != nil {
			return err
		}
	}
	if err != nil {
		return op.Retry(request.BusyDelay, err)
	}
	return nil
}

// sameAsLeft compares the guest's new image with the old images. The guest must be off, and a
// guard refuses its start until they are equal: each write since the switch is a difference.
func (e *Env) sameAsLeft(ctx context.Context, s *move.Spec, to move.Direction, disk *move.DiskState, note settledNote) error {
	end := to.Image(s).Path
	if err := e.guards.Set(s.InstanceID, s.Owner(), fmt.Sprintf("%s may not have stored what instance %s wrote before it was switched there: do not start it before the last call of migration %s, made once more, has looked",
		end, s.InstanceName, s.MigrationID)); err != nil {
		return err
	}
	known := fmt.Sprintf("%s. Instance %s was switched there before that was known, so %s may lack what the guest wrote before; %s is kept, and has that", note.NotStored, s.InstanceName, end, left(s))
	if disk.Active {
		shutdown := shell.Line("virsh", "shutdown", "--", s.InstanceName)
		return op.UnknownOutcome(move.Cured(api.Errorf(api.CodeIOError, "%s. Mend the storage, shut the guest down (`%s`), and call again: both are compared then; docs/how-to/recover.md (An image that could not store what was written) says more",
			known, shutdown), shutdown))
	}
	if !e.move.MayTakeLong(ctx, s) {
		return op.UnknownOutcome(api.Errorf(api.CodeIOError, "%s. Both are compared when this host has rejoined and the call is made again", known))
	}
	err := e.SameAndStored(ctx, s, to)
	switch {
	case api.CodeOf(err) == api.CodeCopyMismatch:
		return op.UnknownOutcome(api.Errorf(api.CodeIOError,
			"%s. They do not read the same: %v. That is what was lost, or what the guest has written since the switch. Nothing was deleted; with the instance off, write that which is right over the other as docs/how-to/recover.md says (An image that could not store what was written), and call again; `%s` shows what is known",
			known, err, s.WhichCommand()))
	case api.CodeOf(err) == api.CodeIOError:
		return op.UnknownOutcome(api.Errorf(api.CodeIOError, "%s. They could not be compared: %v; mend the storage and call again", known, err))
	case err != nil:
		return e.move.HVError(err)
	}
	e.log.Info("the end of a switch whose flush had failed reads as what was left for it", "migration", s.MigrationID, "end", end)
	return e.guards.Clear(s.InstanceID, s.Owner())
}

// SameAndStored proves, after a flush that failed or has no result, that the new image of a switch
// has stored everything that the previous chain has. The guest is off, and a guard of the caller
// refuses its start. A comparison bypasses this host's cache, but not the cache of an NBD server:
// such an image, once it is known to read the same, is written again.
func (e *Env) SameAndStored(ctx context.Context, s *move.Spec, to move.Direction) error {
	again := to.Kind(s).ServerCache && s.Overlay != ""
	if again {
		if err := e.guards.Enforced(); err != nil {
			return op.UnknownOutcome(api.Errorf(api.CodeIOError, "%s may lack what its server could not store, and has to be written again, but nothing would keep instance %s from a start meanwhile: %v; `volferryctl doctor` says what to do; call again then",
				to.Image(s).Path, s.InstanceName, err))
		}
		disk, err := e.look.ConfirmDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.Active {
			return op.Retry(request.BusyDelay, look.GuestIsOn(s)) // it was started before the guard
		}
	}
	if err := e.move.CompareUntilFenced(ctx, s, to.Chain(s)); err != nil || !again {
		return err
	}
	e.progress.Set(s.MigrationID, move.Progress{Phase: "fold"})
	defer e.progress.Clear(s.MigrationID)
	err := e.images.Fold(ctx, s.Overlay, to.Chain(s))
	if transfer.IsIOError(err) {
		return api.Errorf(api.CodeIOError, "%s has to be written again, since its server may not have stored all of it: %v", to.Image(s).Path, err)
	}
	return err
}

// left names the images with the guest's writes from before the switch.
func left(s *move.Spec) string {
	if s.Overlay == "" {
		return s.Src.Path
	}
	return s.Overlay + " over " + s.Src.Path
}
