// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"strings"

	"github.com/volferry/volferry/daemon/internal/image"
)

// rightsOfDst are the rights that a dst gets if the migration makes it: the rights of src.
// They are nil for a device, whose rights udev sets.
func (s *Spec) rightsOfDst() *image.Rights {
	if s.DstBlock {
		return nil
	}
	return s.SrcRights
}

// giveDstRights gives the rights of src to a dst that a pool has made. libvirt takes them
// for the rights that it has to restore when the guest releases dst.
func (e *Env) giveDstRights(ctx context.Context, s *Spec) error {
	if s.rightsOfDst() == nil {
		return nil
	}
	left, err := e.images.GiveRights(ctx, s.Dst.Path, s.rightsOfDst())
	e.warnRefusedRights(s, s.Dst.Path, left)
	return err
}

// giveBackSrcRights restores the rights of src. libvirt restores the rights of the top of a
// chain only, and src was below the overlay when the guest released it. If that fails the
// step goes on all the same: the disk is where it has to be.
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

// warnRefusedRights logs which rights of src an image does not get, because its filesystem
// has no such rights or refuses them to root.
func (e *Env) warnRefusedRights(s *Spec, path string, left []string) {
	if len(left) == 0 {
		return
	}
	e.log.Warn("an image does not get all rights of src: its filesystem refuses", "migration", s.MigrationID, "path", path, "refused", strings.Join(left, ", "))
}
