// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/retry"
)

// SwitchOutput is the cost of the switch to the overlay for the guest.
type SwitchOutput struct {
	// StallMS is an upper bound, in milliseconds, of the time during which QEMU held back the
	// guest's writes. It is nil if no guest ran.
	StallMS *float64 `json:"stall_ms"`
	// Process is the guest's process that was switched; empty if unknown.
	Process string `json:"process,omitempty"`
}

// switchNote is written after libvirt has reported the guest on the overlay: from now on a saved
// guest would be restored there.
//
// FlushingNote is about src, and is written before that.
type switchNote struct {
	Switched bool `json:"switched"`
	move.FlushingNote
}

// StepSwitchToOverlay switches the running guest to the overlay. It is the commit point of start:
// from here the overlay may have writes of the guest. If no guest runs it does nothing: the
// definition already names the overlay.
func (e *Env) StepSwitchToOverlay() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return err
		}
		if err := look.AtRest(s, disk); err != nil {
			return err
		}
		if !disk.Active || disk.Live == move.OnOverlay {
			return r.SetOutput(SwitchOutput{})
		}
		if disk.Live != move.OnSrc || disk.Mirror != nil || disk.Config != move.OnOverlay {
			return look.ChainChanged(s, disk)
		}
		if err := e.look.CheckNoBitmapAppeared(ctx, s); err != nil {
			return err
		}
		if err := e.flushSrc(ctx, r, s, disk); err != nil {
			return err
		}
		process, err := e.hv.Process(ctx, s.InstanceID, s.Target) // before the switch, since this call may wait
		if errors.Is(err, hv.ErrUnavailable) {
			return e.move.HVError(err)
		}
		if err != nil {
			e.log.Warn("the process of a guest was not found", "instance", s.InstanceName, "err", err)
		}
		held, err := e.hv.Snapshot(ctx, s.InstanceID, s.Target, s.OverlayImage())
		if err != nil {
			return e.look.GuestError(ctx, s, err)
		}
		if err := r.Note(ctx, switchNote{Switched: true}); err != nil {
			return err
		}
		return r.SetOutput(SwitchOutput{StallMS: move.Milliseconds(held), Process: process.ID})
	}
	observe := func(ctx context.Context, r *op.Run, s *move.Spec) (op.Observation, error) {
		var note switchNote
		if _, err := r.Noted(SwitchStep, &note); err != nil {
			return op.Unknown, err
		}
		disk, err := e.look.ConfirmDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		switch {
		case disk.Config == move.OnSrc && disk.Active && disk.Live == move.OnSrc && !note.Switched:
			return op.NotDone, nil // another program has changed the definition back
		case disk.Config != move.OnOverlay:
			return op.Unknown, op.UnknownOutcome(look.ChainChanged(s, disk))
		case look.AtRest(s, disk) != nil && !note.Switched:
			return op.NotDone, nil
		case !disk.Active, disk.Live == move.OnOverlay:
			return op.Done, nil
		case disk.Live == move.OnSrc:
			return op.NotDone, nil
		}
		return op.Unknown, op.UnknownOutcome(look.ChainChanged(s, disk))
	}
	return seal.Provided(move.Step(SwitchStep, do, nil, observe), e.seal.SrcUnchanged)
}

// flushSrc flushes src, which QEMU would flush with the guest's writes blocked. If QEMU does not
// flush src, flushSrc first stores that the outcome is unknown: a later flush would not report the
// lost writes again.
func (e *Env) flushSrc(ctx context.Context, r *op.Run, s *move.Spec, disk *move.DiskState) error {
	var note switchNote
	if _, err := r.Noted(SwitchStep, &note); err != nil {
		return err
	}
	if note.Flushing {
		return move.LostByGuest(s, image.FlushUnknown(s.Src.Path))
	}
	err := image.FlushNoted(ctx, !blockjob.QEMUFlushes(disk, s),
		func(flushing bool) error {
			return r.Note(ctx, switchNote{FlushingNote: move.FlushingNote{Flushing: flushing}})
		},
		func() error { return e.move.FlushEarly(ctx, s, s.Src.Path) })
	if err != nil {
		return move.LostByGuest(s, err)
	}
	return ctx.Err()
}

// These steps freeze src.
const (
	SwitchStep = "switch_to_overlay"
	FrozenStep = "verify_frozen"
)

// frozenBound is how long QEMU may take to reopen src for reading only.
const frozenBound = 5 * time.Second

const frozenRetry = 50 * time.Millisecond

// StepVerifyFrozen proves the promise of start: live and persistent XML have the overlay over src,
// and no process of the guest has src open for writing.
func (e *Env) StepVerifyFrozen() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.Config != move.OnOverlay || (disk.Active && disk.Live != move.OnOverlay) {
			return op.UnknownOutcome(look.ChainChanged(s, disk))
		}
		// libvirt omits the end of the chain when it rewrites the persistent XML for a live
		// snapshot.
		if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.OverlayChain()); err != nil {
			return e.move.HVError(err)
		}
		if disk.Active {
			wrong, err := e.awaitNotWritten(ctx, s)
			if err != nil {
				return err
			}
			if wrong != "" {
				return r.SetOutput(seal.FrozenOutput{NotFrozen: wrong})
			}
		}
		if kind := s.SrcKind(); !kind.Witnessed && !kind.Snapshots { // its server may be unavailable, and reports only the size
			return r.SetOutput(seal.FrozenOutput{At: e.now().UTC(), Src: &image.Stamp{SizeBytes: s.Src.SizeBytes}})
		}
		out, err := e.sealFlushed(ctx, r, s, disk)
		switch {
		case move.NotStored(err): // a second flush would not report it
			return r.SetOutput(seal.FrozenOutput{NotStored: move.LostByGuest(s, err).Error()})
		case err != nil:
			return err
		}
		return r.SetOutput(out)
	}
	return move.Step(FrozenStep, do, nil, nil)
}

// sealFlushed returns the seal of src. A flush of src that the daemon did not survive, here or in
// StepSwitchToOverlay, counts as failed if QEMU does not flush src.
func (e *Env) sealFlushed(ctx context.Context, r *op.Run, s *move.Spec, disk *move.DiskState) (seal.FrozenOutput, error) {
	for _, step := range []string{SwitchStep, FrozenStep} {
		var note move.FlushingNote
		if _, err := r.Noted(step, &note); err != nil {
			return seal.FrozenOutput{}, err
		}
		if note.Flushing {
			return seal.FrozenOutput{}, image.FlushUnknown(s.Src.Path)
		}
	}
	alone := s.SrcKind().Witnessed && !blockjob.QEMUFlushes(disk, s)
	var out seal.FrozenOutput
	err := image.FlushNoted(ctx, alone,
		func(flushing bool) error { return r.Note(ctx, move.FlushingNote{Flushing: flushing}) },
		func() (err error) {
			out, err = e.seal.Seal(ctx, r, s, FrozenStep)
			return err
		})
	return out, err
}

func (e *Env) openFiles(ctx context.Context, s *move.Spec, path string) ([]hv.OpenFile, error) {
	files, err := e.hv.OpenFiles(ctx, s.InstanceID, path)
	if errors.Is(err, hv.ErrUnavailable) {
		return nil, e.move.HVError(err)
	}
	if err != nil {
		return nil, op.Retry(frozenRetry, err) // the guest may just have stopped
	}
	return files, nil
}

// awaitNotWritten waits until no process of the guest has src open for writing. After frozenBound
// it names the process.
func (e *Env) awaitNotWritten(ctx context.Context, s *move.Spec) (wrong string, err error) {
	var by hv.OpenFile
	frozen, err := retry.Poll(ctx, frozenRetry, frozenBound, func() (bool, error) {
		files, err := e.openFiles(ctx, s, s.Src.Path)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(files, func(f hv.OpenFile) bool { return f.Writable })
		if i >= 0 {
			by = files[i]
		}
		return i < 0, nil
	})
	if err != nil || frozen {
		return "", err
	}
	return fmt.Sprintf("QEMU of instance %s still had %s open for writing (%s) %s after the guest was put onto its overlay, so it cannot be copied; the guest is brought back to it",
		s.InstanceName, s.Src.Path, by.Name(), frozenBound), nil
}
