// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// dstOwner says who owns what is at the path of dst.
type dstOwner int

const (
	ownedByNobody dstOwner = iota // nothing is there
	ownedByUs
	ownedByOthers // or nobody can tell
)

// dstOwner finds out who owns what is at the path of dst. In a pool, an image with the name
// of dst is ours even before the journal has its fingerprint: the name carries the id of the
// migration, and was free when the journal was told that dst would be made.
func (e *Env) dstOwner(ctx context.Context, s *Spec, note DstNote) (dstOwner, error) {
	now, err := e.images.Fingerprint(ctx, s.Dst.Path)
	switch {
	case errors.Is(err, image.ErrAbsent):
		return e.dstOwnerInPool(ctx, s)
	case err != nil:
		return ownedByOthers, err
	case !note.Ours:
		return ownedByOthers, nil
	case note.Print == "" && s.Dst.Pool != "" && strings.Contains(s.Dst.Name, s.MigrationID[:8]):
		return ownedByUs, nil
	case note.Print == "" || note.Print != now:
		return ownedByOthers, nil
	}
	return ownedByUs, nil
}

// dstOwnerInPool is dstOwner for a dst that has no path now: a logical volume that is not
// active is there all the same.
func (e *Env) dstOwnerInPool(ctx context.Context, s *Spec) (dstOwner, error) {
	if s.Dst.Pool == "" {
		return ownedByNobody, nil
	}
	_, err := e.hv.LookupVolume(ctx, s.Dst.Pool, s.Dst.Name)
	if errors.Is(err, hv.ErrNotFound) {
		return ownedByNobody, nil
	}
	return ownedByOthers, e.hvError(err)
}

// removeTemporary removes the file that an attempt which was cut off has left under its
// temporary name. Nobody else knows that name.
func (e *Env) removeTemporary(ctx context.Context, s *Spec, note DstNote) error {
	if note.Temporary == "" {
		return nil
	}
	return e.images.Remove(ctx, temporaryPath(s, note))
}

func temporaryPath(s *Spec, note DstNote) string {
	return filepath.Join(filepath.Dir(s.Dst.Path), note.Temporary)
}

// removeDestination deletes a dst that the migration made, and no other image that is at
// its path by now. It refuses while the disk of the instance is on dst.
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

// notNamed makes sure, before an image is deleted, that no domain of this host has it in a
// chain, and no process of a domain has it open.
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
