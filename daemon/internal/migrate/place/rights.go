// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"strings"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

// rightsOfDst returns the rights for a dst that the migration makes: the rights of src. They are
// nil for a device, which gets its rights from udev.
func rightsOfDst(s *move.Spec) *image.Rights {
	if s.DstBlock {
		return nil
	}
	return s.SrcRights
}

// giveDstRights sets the rights of src on a dst that a pool has made. libvirt remembers them as the
// rights to restore when the guest releases dst.
func (e *Env) giveDstRights(ctx context.Context, s *move.Spec) error {
	if rightsOfDst(s) == nil {
		return nil
	}
	left, err := e.images.GiveRights(ctx, s.Dst.Path, rightsOfDst(s))
	e.warnRefusedRights(s, s.Dst.Path, left)
	return err
}

// GiveBackSrcRights restores the rights of src. libvirt restores only the rights of the top of a
// chain, and src was below the overlay when the guest released it. A failure does not fail the
// step.
func (e *Env) GiveBackSrcRights(ctx context.Context, s *move.Spec) {
	if s.Method != move.MethodOverlay || s.SrcRights == nil {
		return
	}
	is, err := e.seal.IsSource(ctx, s)
	if err == nil && is {
		var left []string
		left, err = e.images.GiveBack(ctx, s.Src.Path, s.SrcRights)
		e.warnRefusedRights(s, s.Src.Path, left)
	}
	if err != nil {
		e.log.Warn("src does not get its owner back", "migration", s.MigrationID, "path", s.Src.Path, "err", err)
	}
}

// warnRefusedRights logs the rights of src that an image does not get, because its filesystem lacks
// them or refuses them to root.
func (e *Env) warnRefusedRights(s *move.Spec, path string, left []string) {
	if len(left) == 0 {
		return
	}
	e.log.Warn("an image does not get all rights of src: its filesystem refuses", "migration", s.MigrationID, "path", path, "refused", strings.Join(left, ", "))
}
