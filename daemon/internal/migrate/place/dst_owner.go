// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"errors"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

type dstOwner int

const (
	ownedByNobody dstOwner = iota // the path is empty
	ownedByUs
	ownedByOthers // or unknown
)

// dstOwner returns the owner of the image at dst's path. In a pool, an image with dst's name is
// ours even before the journal has its fingerprint: the name has the migration's id, and was free
// when the journal recorded that dst would be made.
func (e *Env) dstOwner(ctx context.Context, s *move.Spec, note move.DstNote) (dstOwner, error) {
	now, err := e.images.Fingerprint(ctx, s.Dst.Path)
	if errors.Is(err, image.ErrAbsent) {
		if there, err := e.poolHasDst(ctx, s); err != nil || !there {
			return ownedByNobody, err
		}
		// dst may have its path now: a pool that is making it answers afterwards.
		now, err = e.images.Fingerprint(ctx, s.Dst.Path)
	}
	switch {
	case errors.Is(err, image.ErrAbsent): // an inactive logical volume
		return ownedByOthers, nil
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

func (e *Env) poolHasDst(ctx context.Context, s *move.Spec) (bool, error) {
	if s.Dst.Pool == "" {
		return false, nil
	}
	_, err := e.pools.LookupVolume(ctx, s.Dst.Pool, s.Dst.Name)
	if errors.Is(err, hv.ErrNotFound) {
		return false, nil
	}
	return err == nil, e.move.HVError(err)
}
