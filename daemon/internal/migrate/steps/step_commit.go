// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/op"
)

// slowNote records the measures against a guest that writes faster than the commit.
type slowNote struct {
	// Throttled: the guest's writes are limited until the step has ended. Recorded: the earlier
	// limit is in the journal; older versions restored the limit of the definition.
	Throttled bool `json:"throttled"`
	Recorded  bool `json:"recorded,omitempty"`
	// Pause: the limit was not enough, and only the following pause lets the job catch up.
	Pause bool `json:"pause"`
	foldingNote
}

// stepCommit folds the overlay back into src while the guest runs, by a commit job; it is not the
// commit point of an op. QEMU's commit has no synchronous mode. So a guest that writes faster than
// the job is first limited and then, by the next step, paused: the job always ends. While the job
// makes progress, the guest is not limited.
func (e *Env) stepCommit() op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		var note slowNote
		if _, err := r.Noted(commitStep, &note); err != nil {
			return err
		}
		if !note.Folding {
			disk, err := e.readDisk(ctx, s)
			if err != nil {
				return err
			}
			if err := e.sealedUnlessCommitted(ctx, s, disk, r.OpID()); err != nil {
				return err
			}
			if err := e.endNotInUse(ctx, s, toSrc); err != nil {
				return err
			}
		}
		folding := foldingNote{Folding: true}
		if note.Pause || !note.Folding { // the pause was for a job that is gone
			if err := r.Note(ctx, slowNote{Throttled: note.Throttled, Recorded: note.Recorded, foldingNote: folding}); err != nil {
				return err
			}
		}
		if err := e.dropSnapshotToFold(ctx, s); err != nil {
			return err
		}
		if !note.Throttled {
			ready, err := e.runJob(ctx, r, s, toSrc, CommitBound, givesWay)
			if err != nil || ready {
				return err
			}
		}
		if err := e.endOlderThrottle(ctx, s, note); err != nil {
			return err
		}
		if err := r.Note(ctx, slowNote{Throttled: true, Recorded: true, foldingNote: folding}); err != nil {
			return err
		}
		if err := e.limitForCommit(ctx, s, ThrottleBytesPerSecond); err != nil {
			return err
		}
		ready, err := e.runJob(ctx, r, s, toSrc, CommitBound, asFastAsItCan)
		if err != nil || ready {
			return err
		}
		return r.Note(ctx, slowNote{Throttled: true, Recorded: true, Pause: true, foldingNote: folding})
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		if err := e.liftThrottle(ctx, r, s); err != nil {
			return err
		}
		return e.abortCommit(ctx, s)
	}
	observe := func(ctx context.Context, r *op.Run, s *Spec) (op.Observation, error) {
		var note slowNote
		if _, err := r.Noted(commitStep, &note); err != nil {
			return op.Unknown, err
		}
		disk, err := e.confirmDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		mirror := disk.ours(toSrc, s)
		ready, err := e.caughtUp(ctx, s, toSrc, mirror)
		return op.DoneIf((ready || mirror != nil && note.Pause) && disk.mayName(s, toSrc) == nil), err
	}
	return jobProvided(step(commitStep, do, undo, observe), e.srcUnchanged)
}

const commitStep = "commit"

func (e *Env) liftThrottle(ctx context.Context, r *op.Run, s *Spec) error {
	var note slowNote
	if _, err := r.Noted(commitStep, &note); err != nil || !note.Throttled {
		return err
	}
	if err := e.endOlderThrottle(ctx, s, note); err != nil {
		return err
	}
	return e.limitForCommit(ctx, s, 0)
}

// endOlderThrottle removes the limit of a step that an older version has begun: the earlier limit
// is only in the guest's definition.
func (e *Env) endOlderThrottle(ctx context.Context, s *Spec, note slowNote) error {
	if !note.Throttled || note.Recorded {
		return nil
	}
	disk, err := e.readDisk(ctx, s)
	if err != nil || !disk.active {
		return err
	}
	err = e.hv.ResetWriteLimit(ctx, s.InstanceID, s.Target)
	if errors.Is(err, hv.ErrUnsupported) {
		return nil
	}
	return e.hvError(err)
}
