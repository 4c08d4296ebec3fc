// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// StepRemoveDestination removes a dst that the cancelled migration made.
func (e *Env) StepRemoveDestination() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if s.DstOrigin() == move.DstExists {
			return r.SetOutput(leftOutput{
				move.RemarkOutput{Remark: s.Dst.Path + " was there before the move, and is left; it may hold a part of the copy" + e.mayBeWritten(s)},
				e.stampOfLeft(ctx, s),
			})
		}
		note, err := e.history.Dst(ctx, s)
		if err != nil {
			return err
		}
		if err := e.removeDestination(ctx, s, note); err != nil {
			return err
		}
		if err := e.copier.Forget(ctx, s.CopyKey()); err != nil {
			return err
		}
		if s.DstOrigin() == move.DstConnected {
			// Nothing else shows that the step is done, since other volumes may keep the device
			// connected.
			if err := r.Note(ctx, disconnectedNote{true}); err != nil {
				return err
			}
			return r.SetOutput(move.RemarkOutput{Remark: s.Dst.Path + " was its target's before the move, and is disconnected; it may hold a part of the copy"})
		}
		if whose, err := e.dstOwner(ctx, s, note); err != nil || whose != ownedByOthers {
			return err
		}
		return r.SetOutput(move.RemarkOutput{Remark: s.Dst.Path + " is left as it is: what is there now is not what this migration has made"})
	}
	observe := func(ctx context.Context, r *op.Run, s *move.Spec) (op.Observation, error) {
		switch s.DstOrigin() {
		case move.DstExists:
			return op.Done, nil
		case move.DstConnected:
			var note disconnectedNote
			_, err := r.Noted(removeDestinationStep, &note)
			return op.DoneIf(note.Disconnected), err
		case move.DstMade:
		}
		note, err := e.history.Dst(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		whose, err := e.dstOwner(ctx, s, note)
		return op.DoneIf(whose != ownedByUs), err
	}
	return move.Step(removeDestinationStep, do, nil, observe)
}

const removeDestinationStep = "remove_destination"

type leftOutput struct {
	move.RemarkOutput
	// Dst is the stamp of the file with our copy, nil if unknown.
	Dst *image.Stamp `json:"dst,omitempty"`
}

// stampOfLeft returns the stamp of a file that a cancel leaves. A file without a stamp counts as
// another program's, and a later move asks before it overwrites the file.
func (e *Env) stampOfLeft(ctx context.Context, s *move.Spec) *image.Stamp {
	if !s.DstKind().Filesystem {
		return nil // only files need a stamp
	}
	stamp, err := e.seal.StampToKeep(ctx, s.Dst.Path)
	if err != nil {
		e.log.Warn("a later move to a destination that is left will ask before it overwrites that", "migration", s.MigrationID, "path", s.Dst.Path, "err", err)
		return nil
	}
	return &stamp
}

// LeftDst returns the stamp of an existing dst that this op, a cancel, has left; nil if unknown.
func LeftDst(st *op.Status) *image.Stamp {
	var out leftOutput
	move.DecodeOutput(st, removeDestinationStep, &out)
	return out.Dst
}

// DstAfter returns the fate of dst after this op, a cancel (api.Migration.DstAfter).
func DstAfter(st *op.Status, s *move.Spec) string {
	if st.State != op.StateDone || !st.Op.Has(removeDestinationStep) {
		return ""
	}
	var out move.RemarkOutput
	move.DecodeOutput(st, removeDestinationStep, &out)
	if s.DstOrigin() != move.DstMade || out.Remark != "" {
		return api.DstKept
	}
	return api.DstDeleted
}

type disconnectedNote struct {
	Disconnected bool `json:"disconnected"`
}

// removeTemporary removes an interrupted attempt's file. Only the migration knows its temporary
// name.
func (e *Env) removeTemporary(ctx context.Context, s *move.Spec, note move.DstNote) error {
	if note.Temporary == "" {
		return nil
	}
	return e.remover.RemoveMade(ctx, temporaryPath(s, note), "")
}

func temporaryPath(s *move.Spec, note move.DstNote) string {
	return image.TemporaryPath(s.Dst.Path, note.Temporary)
}

// removeDestination deletes a dst that the migration made, but no other image at its path. It
// refuses while the instance's disk is on dst.
func (e *Env) removeDestination(ctx context.Context, s *move.Spec, note move.DstNote) error {
	if s.DstOrigin() == move.DstConnected {
		return e.disconnectDestination(ctx, s)
	}
	if err := e.removeTemporary(ctx, s, note); err != nil {
		return err
	}
	whose, err := e.dstOwner(ctx, s, note)
	if err != nil || whose == ownedByNobody {
		return err
	}
	if whose == ownedByOthers {
		e.log.Warn("dst is not deleted: what is there is not known to be what the migration made", "migration", s.MigrationID, "path", s.Dst.Path)
		return nil
	}
	if err := e.dstLeft(ctx, s); err != nil {
		return err
	}
	if s.Dst.Pool == "" {
		return e.remover.RemoveMade(ctx, s.Dst.Path, note.Print)
	}
	if err := e.pools.DeleteVolume(ctx, s.Dst.Pool, s.Dst.Name); err != nil {
		return e.move.HVError(cmp.Or(e.poolUnusable(ctx, s.Dst, "which this migration has made", "cancel again"), err))
	}
	return nil
}

// poolUnusable returns why an image cannot be deleted from its pool now, or nil if the pool's
// state is not the reason. Only the operator can change that state, and then repeats the call.
func (e *Env) poolUnusable(ctx context.Context, l api.Location, what, again string) error {
	pools, err := e.pools.Pools(ctx)
	if err != nil {
		return nil //nolint:nilerr // the caller returns its first error
	}
	pool, err := location.Pool(pools, l.Pool)
	if err == nil {
		return nil
	}
	refused := api.Errorf(api.CodeNeedsOperator, "%s, %s, cannot be deleted: %v; see to the pool, then %s", l.Path, what, err, again)
	if pool.Name != "" && !pool.Active && pool.Type != hv.ConnectorPool {
		return op.UnknownOutcome(move.Cured(refused, move.StartPoolCommand(l.Pool)))
	}
	return op.UnknownOutcome(refused)
}

func (e *Env) mayBeWritten(s *move.Spec) string {
	if open, err := e.copier.Unanswered(s.CopyKey()); err == nil && !open {
		return ""
	}
	return "; its storage was asked to copy a part and has not answered: see to it that it does nothing any more before you use that volume"
}
