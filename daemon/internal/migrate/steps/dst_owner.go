// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
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
