// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"strings"

	"github.com/volferry/volferry/daemon/internal/image"
)

// rightsOfDst are those that dst gets when the migration makes it: those of src. They are nil
// for a device, which is udev's.
func (s *Spec) rightsOfDst() *image.Rights {
	if s.DstBlock {
		return nil
	}
	return s.SrcRights
}

// giveDstRights gives a dst that the migration had its pool make the rights of src. libvirt takes them for those that it has to give back when the guest lets go of dst.
func (e *Env) giveDstRights(ctx context.Context, s *Spec) error {
	if s.rightsOfDst() == nil {
		return nil
	}
	left, err := e.images.GiveRights(ctx, s.Dst.Path, s.rightsOfDst())
	e.warnRefusedRights(s, s.Dst.Path, left)
	return err
}

// giveBackSrcRights makes src its owner's again. libvirt does that for the top of a chain, and src
// was below the overlay when the guest let go of it. That src keeps what it has is no
// reason to stop: the disk is where it shall be.
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

// warnRefusedRights says what an image does not have of the rights of src, because its filesystem
// has no such thing or refuses it to root.
func (e *Env) warnRefusedRights(s *Spec, path string, left []string) {
	if len(left) == 0 {
		return
	}
	e.log.Warn("an image does not get all rights of src: its filesystem refuses", "migration", s.MigrationID, "path", path, "refused", strings.Join(left, ", "))
}
