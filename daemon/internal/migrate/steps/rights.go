// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"strings"

	"github.com/volferry/volferry/daemon/internal/image"
)

// rightsOfDst returns the rights for a dst that the migration makes: the rights of src. They are
// nil for a device, which gets its rights from udev.
func (s *Spec) rightsOfDst() *image.Rights {
	if s.DstBlock {
		return nil
	}
	return s.SrcRights
}

// giveDstRights sets the rights of src on a dst that a pool has made. libvirt remembers them as the
// rights to restore when the guest releases dst.
func (e *Env) giveDstRights(ctx context.Context, s *Spec) error {
	if s.rightsOfDst() == nil {
		return nil
	}
	left, err := e.images.GiveRights(ctx, s.Dst.Path, s.rightsOfDst())
	e.warnRefusedRights(s, s.Dst.Path, left)
	return err
}

// giveBackSrcRights restores the rights of src. libvirt restores only the rights of the top of a
// chain, and src was below the overlay when the guest released it. A failure does not fail the
// step.
func (e *Env) giveBackSrcRights(ctx context.Context, s *Spec) {
	if s.Method != MethodOverlay || s.SrcRights == nil {
		return
	}
	is, err := e.isSource(ctx, s)
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
func (e *Env) warnRefusedRights(s *Spec, path string, left []string) {
	if len(left) == 0 {
		return
	}
	e.log.Warn("an image does not get all rights of src: its filesystem refuses", "migration", s.MigrationID, "path", path, "refused", strings.Join(left, ", "))
}
