// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// removeDestination deletes a dst that the migration made, and nothing else that is at
// its place. It refuses while the disk is on it.
func (e *Env) removeDestination(ctx context.Context, s *Spec, note DstNote) error {
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
	if s.Attached() {
		disk, err := e.confirmDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.config == OnDst || disk.live == OnDst || disk.mirror != nil {
			return op.UnknownOutcome(chainChanged(s, disk))
		}
	}
	if err := e.notNamed(ctx, s.Dst.Path); err != nil {
		return err
	}
	if s.Dst.Pool != "" {
		return e.hvError(e.hv.DeleteVolume(ctx, s.Dst.Pool, s.Dst.Name))
	}
	return e.images.Remove(ctx, s.Dst.Path)
}

// notNamed makes sure, before an image is deleted, that no domain of this host
// has it in a chain, and no process of one open.
func (e *Env) notNamed(ctx context.Context, path string) error {
	doms, err := e.hv.Domains(ctx)
	if err != nil {
		return e.hvError(err)
	}
	domain, target, err := location.DiskOf(doms, path)
	switch {
	case err != nil:
		return op.UnknownOutcome(CannotTellUser(path, err))
	case domain != "":
		return op.UnknownOutcome(api.Errorf(api.CodeDstInUse, "%s was to be deleted, but disk %s of instance %s uses it", path, target, domain))
	}
	return e.notOpen(ctx, doms, path)
}

// stepRemoveDestination ends a cancelled migration: a dst that it made is of no
// use any more.
func (e *Env) stepRemoveDestination() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		if !s.CreateDst {
			return nil
		}
		note, err := e.history.Dst(ctx, s)
		if err != nil {
			return err
		}
		return e.removeDestination(ctx, s, note)
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		if !s.CreateDst {
			return op.Done, nil
		}
		note, err := e.history.Dst(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		whose, err := e.dstOwner(ctx, s, note)
		return op.DoneIf(whose != ownedByUs), err
	}
	return step("remove_destination", do, nil, observe)
}

// stepReleaseSource ends a completed migration: src is the operator's again, or
// is deleted if that was asked for and the copy was read back.
func (e *Env) stepReleaseSource() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		if err := e.copier.Forget(ctx, s.CopyKey()); err != nil || !mayDeleteSource(s) {
			return err
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

// deleteSource deletes src, unless what is at its place is not src any more, or has
// become somebody else's: the registry has given the place back before.
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

// isSource says whether what is at the place of src is the image that was moved. Where
// nothing is left there is nothing that could be another one.
func (e *Env) isSource(ctx context.Context, s *Spec) (bool, error) {
	if s.SrcPrint != "" {
		now, err := e.images.Fingerprint(ctx, s.Src.Path)
		if errors.Is(err, image.ErrAbsent) {
			return true, nil
		}
		if err != nil || now != s.SrcPrint {
			return false, err
		}
	}
	if s.Src.Pool == "" {
		return true, nil
	}
	found, err := e.hv.LookupVolume(ctx, s.Src.Pool, s.Src.Name)
	if errors.Is(err, hv.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return location.SameImage(found.Path, s.Src.Path)
}

// mayDeleteSource: preflight refuses --delete-source without verification, and
// complete does not get here without a verified copy then.
func mayDeleteSource(s *Spec) bool {
	return s.DeleteSource && s.Verify == VerifyFull
}
