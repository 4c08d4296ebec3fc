// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// StepCompare compares src and dst of a mirror, if that was requested. The guest is paused
// meanwhile, since src is not frozen.
//
// If they differ, guest and job continue, and the operator decides: each image has received the
// guest's writes since the mirror began, and may lack some. A cancel of the mirror deletes dst.
func (e *Env) StepCompare() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if s.Verify != move.VerifyFull {
			return nil
		}
		var note move.MismatchNote
		if _, err := r.Noted(move.CompareStep, &note); err != nil {
			return err
		}
		if note.PauseEnded {
			return &move.WorldChangedError{What: "both sides of a mirror that differed are compared once more, in another pause"}
		}
		if note.Differs == "" {
			err := e.compareSides(ctx, s)
			if api.CodeOf(err) != api.CodeCopyMismatch {
				return err
			}
			note.Differs = err.Error()
			if err := r.Note(ctx, note); err != nil {
				return err
			}
		}
		if err := e.resume(ctx, r, s, move.ToSwitch); err != nil {
			return err
		}
		note.PauseEnded = true
		if err := r.Note(ctx, note); err != nil {
			return err
		}
		return op.UnknownOutcome(sidesDiffer(s, note.Differs))
	}
	return move.Step(move.CompareStep, do, nil, nil)
}

func (e *Env) compareSides(ctx context.Context, s *move.Spec) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A daemon that stops must not leave the guest paused.
	defer context.AfterFunc(e.stopping, func() {
		cancel(&move.WorldChangedError{What: "the daemon was stopped while both sides were compared"})
	})()
	return e.move.Compare(ctx, s, s.SrcChain(), s.DstChain(), s.SizeBytes())
}

func sidesDiffer(s *move.Spec, how string) error {
	return api.Errorf(api.CodeCopyMismatch, "%s: %s and %s both got what instance %s has written since the mirror began, and either may be the wrong one; the instance goes on with %[2]s, the mirror stays at work, and nothing was deleted: "+
		"look at the storage of both; `%[5]s` compares them once more, and `%[6]s` stays at %[2]s and deletes %[3]s",
		how, s.Src.Path, s.Dst.Path, s.InstanceName, shell.Line("volferryctl", "migration", "complete", s.MigrationID), shell.Line("volferryctl", "migration", "cancel", s.MigrationID))
}
