// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/op"
)

// stepReleaseSource ends a completed migration: src is the operator's again, or
// is deleted if that was asked for and the copy was read back.
func (e *Env) stepReleaseSource() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		if err := e.copier.Forget(ctx, s.CopyKey()); err != nil {
			return err
		}
		if !mayDeleteSource(s) {
			return e.disconnectSource(ctx, s)
		}
		if s.Attached() {
			disk, err := e.confirmDisk(ctx, s)
			if err != nil {
				return err
			}
			if disk.config != OnDst || (disk.active && disk.live != OnDst) {
				return op.UnknownOutcome(chainChanged(s, disk))
			}
		}
		if err := e.notNamed(ctx, s.Src.Path); err != nil {
			return err
		}
		return e.deleteSource(ctx, s)
	}
	return step("release_source", do, nil, nil)
}

// deleteSource deletes src, unless another image is at its path by now, or src belongs to
// somebody else: the registry has freed it before.
func (e *Env) deleteSource(ctx context.Context, s *Spec) error {
	self := location.Self{MigrationID: s.MigrationID}
	holder, err := e.claims.Take(ctx, s.Src.Path, self, func() error {
		is, err := e.isSource(ctx, s)
		if err != nil {
			return err
		}
		if !is {
			e.log.Warn("src is not deleted: something else is at its place by now", "migration", s.MigrationID, "path", s.Src.Path)
			return nil
		}
		if s.Src.Pool != "" {
			return e.hv.DeleteVolume(ctx, s.Src.Pool, s.Src.Name)
		}
		return e.images.Remove(ctx, s.Src.Path)
	})
	if errors.Is(err, location.ErrCannotTell) {
		return op.UnknownOutcome(CannotTellUser(s.Src.Path, err))
	}
	if err == nil && holder.Words != "" {
		e.log.Warn("src is not deleted: somebody else has it by now", "migration", s.MigrationID, "path", s.Src.Path, "it", holder.Words)
	}
	return e.hvError(e.registryError(err))
}

// mayDeleteSource says whether src is to be deleted. Preflight refuses --delete-source
// without verification, and a complete does not get here then without a verified copy.
func mayDeleteSource(s *Spec) bool {
	return s.DeleteSource && s.Verify == VerifyFull
}
