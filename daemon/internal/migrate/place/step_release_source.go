// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
)

// StepReleaseSource ends a completed migration. src becomes a released source, or is deleted if
// that was requested and the copy was read back.
func (e *Env) StepReleaseSource() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if err := e.copier.Forget(ctx, s.CopyKey()); err != nil {
			return err
		}
		if !mayDeleteSource(s) {
			return e.disconnectSource(ctx, s)
		}
		if s.Attached() {
			disk, err := e.look.ConfirmDisk(ctx, s)
			if err != nil {
				return err
			}
			if disk.Config != move.OnDst || (disk.Active && disk.Live != move.OnDst) {
				return op.UnknownOutcome(look.ChainChanged(s, disk))
			}
		}
		if err := e.look.NotNamed(ctx, s.Src.Path); err != nil {
			return err
		}
		kept, err := e.DeleteSource(ctx, s, r.OpID())
		if err != nil || kept == "" {
			return err
		}
		return r.SetOutput(move.RemarkOutput{Remark: s.Src.Path + " was to be deleted and is kept: " + kept})
	}
	return move.Step("release_source", do, nil, nil)
}

// DeleteSource deletes src, which the registry has freed. It keeps a src with another owner or
// user, or with another image at its path. It also keeps a src that may have been written since it
// was frozen or closed, since the volume may lack these writes: only then kept has the reason.
func (e *Env) DeleteSource(ctx context.Context, s *move.Spec, opID string) (kept string, err error) {
	self := location.Self{MigrationID: s.MigrationID}
	holder, err := e.claims.Take(ctx, s.Src.Path, self, func() error {
		is, err := e.seal.IsSource(ctx, s)
		if err != nil {
			return err
		}
		if !is {
			e.log.Warn("src is not deleted: something else is at its place by now", "migration", s.MigrationID, "path", s.Src.Path)
			return nil
		}
		kept, err = e.whyKeepSource(ctx, s, opID)
		if kept != "" {
			return nil
		}
		if err != nil && !errors.Is(err, image.ErrAbsent) { // an earlier try has deleted the file
			return err
		}
		if s.Src.Pool != "" {
			if err := e.pools.DeleteVolume(ctx, s.Src.Pool, s.Src.Name); err != nil {
				return cmp.Or(e.poolUnusable(ctx, s.Src, "which this migration has left", "call again"), err)
			}
			return nil
		}
		return e.remover.Remove(ctx, s.Src.Path)
	})
	switch {
	case errors.Is(err, location.ErrCannotTell):
		return kept, op.UnknownOutcome(look.UserUnknown(s.Src.Path, err))
	case err == nil && holder.Words != "":
		e.log.Warn("src is not deleted: somebody else has it by now", "migration", s.MigrationID, "path", s.Src.Path, "it", holder.Words)
	}
	return kept, e.move.HVError(e.move.RegistryError(err))
}

func (e *Env) whyKeepSource(ctx context.Context, s *move.Spec, opID string) (string, error) {
	facts, err := e.history.Facts(ctx, s, opID)
	if err != nil {
		return "", err
	}
	change, why, err := e.seal.ChangeSinceLeft(ctx, s, facts.Seal)
	switch {
	case err != nil || change == image.Unchanged:
		return "", err
	case change == image.Changed:
		return "it was written since the volume has left it, by a guest that was started on it perhaps, and may have what the volume lacks", nil
	}
	return "nobody can tell whether it was written since the volume has left it (" + why + "), so that it may have what the volume lacks", nil
}

// mayDeleteSource reports whether src is to be deleted. Preflight refuses --delete-source without
// verification, and a complete op does not reach this step without a verified copy.
func mayDeleteSource(s *move.Spec) bool {
	return s.DeleteSource && s.Verify == move.VerifyFull
}
