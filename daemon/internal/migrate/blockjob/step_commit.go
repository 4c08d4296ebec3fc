// SPDX-License-Identifier: Apache-2.0

package blockjob

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
)

// slowNote records the measures against a guest that writes faster than the commit.
type slowNote struct {
	// Throttled: the guest's writes are limited until the step has ended (WriteLimit).
	Throttled bool `json:"throttled"`
	// Pause: the limit was not enough, and only the following pause lets the job catch up.
	Pause bool `json:"pause"`
	move.FoldingNote
}

// StepCommit folds the overlay back into src by a commit job while the guest runs. QEMU's commit
// has no synchronous mode. So a guest that writes faster than the job is first limited and then
// paused by the next step: the job always ends.
func (e *Env) StepCommit() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		var note slowNote
		if _, err := r.Noted(CommitStep, &note); err != nil {
			return err
		}
		if !note.Folding {
			disk, err := e.move.ReadDisk(ctx, s)
			if err != nil {
				return err
			}
			if err := e.seal.SealedUnlessCommitted(ctx, s, disk, r.OpID()); err != nil {
				return err
			}
			if err := e.look.EndNotInUse(ctx, s, move.ToSrc); err != nil {
				return err
			}
		}
		folding := move.FoldingNote{Folding: true}
		if note.Pause || !note.Folding { // the pause was for a job that has ended
			if err := r.Note(ctx, slowNote{Throttled: note.Throttled, FoldingNote: folding}); err != nil {
				return err
			}
		}
		if err := e.seal.DropSnapshotToFold(ctx, s); err != nil {
			return err
		}
		if !note.Throttled {
			ready, err := e.runJob(ctx, r, s, move.ToSrc, move.CommitBound, givesWay)
			if err != nil || ready {
				return err
			}
		}
		if err := r.Note(ctx, slowNote{Throttled: true, FoldingNote: folding}); err != nil {
			return err
		}
		if err := e.limitForCommit(ctx, s, ThrottleBytesPerSecond); err != nil {
			return err
		}
		ready, err := e.runJob(ctx, r, s, move.ToSrc, move.CommitBound, asFastAsItCan)
		if err != nil || ready {
			return err
		}
		return r.Note(ctx, slowNote{Throttled: true, Pause: true, FoldingNote: folding})
	}
	undo := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if err := e.LiftThrottle(ctx, r, s); err != nil {
			return err
		}
		return e.abortCommit(ctx, s)
	}
	observe := func(ctx context.Context, r *op.Run, s *move.Spec) (op.Observation, error) {
		var note slowNote
		if _, err := r.Noted(CommitStep, &note); err != nil {
			return op.Unknown, err
		}
		disk, err := e.look.ConfirmDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		mirror := disk.Ours(move.ToSrc, s)
		ready, err := e.caughtUp(ctx, s, move.ToSrc, mirror)
		return op.DoneIf((ready || mirror != nil && note.Pause) && look.MayName(disk, s, move.ToSrc) == nil), err
	}
	return seal.JobProvided(move.Step(CommitStep, do, undo, observe), e.seal.SrcUnchanged)
}

// CommitStep is the name of StepCommit.
const CommitStep = "commit"

// LiftThrottle ends StepCommit's limit on the guest's writes.
func (e *Env) LiftThrottle(ctx context.Context, r *op.Run, s *move.Spec) error {
	var note slowNote
	if _, err := r.Noted(CommitStep, &note); err != nil || !note.Throttled {
		return err
	}
	return e.limitForCommit(ctx, s, 0)
}
