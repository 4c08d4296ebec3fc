// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"strings"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

// rightsOfDst returns the rights of src for a dst that the migration makes as a file, or nil for a
// device: udev sets a device's rights.
func rightsOfDst(s *move.Spec) *image.Rights {
	if !s.DstKind().Filesystem {
		return nil
	}
	return s.SrcRights
}

// giveDstRights sets src's rights on a dst that a pool has made. libvirt restores them when the
// guest releases dst.
func (e *Env) giveDstRights(ctx context.Context, s *move.Spec) error {
	if rightsOfDst(s) == nil {
		return nil
	}
	left, err := e.rights.GiveRights(ctx, s.Dst.Path, rightsOfDst(s))
	e.warnRefusedRights(s, s.Dst.Path, left)
	return err
}

// GiveBackSrcRights restores the rights of src: libvirt restores only the rights of a chain's top,
// and src was below the overlay when the guest released it. A failure does not fail the step.
func (e *Env) GiveBackSrcRights(ctx context.Context, s *move.Spec) {
	if s.Method != move.MethodOverlay || s.SrcRights == nil {
		return
	}
	is, err := e.seal.IsSource(ctx, s)
	if err == nil && is {
		var left []string
		left, err = e.rights.GiveBack(ctx, s.Src.Path, s.SrcRights)
		e.warnRefusedRights(s, s.Src.Path, left)
	}
	if err != nil {
		e.log.Warn("src does not get its owner back", "migration", s.MigrationID, "path", s.Src.Path, "err", err)
	}
}

func (e *Env) warnRefusedRights(s *move.Spec, path string, left []string) {
	if len(left) == 0 {
		return
	}
	e.log.Warn("an image does not get all rights of src: its filesystem refuses", "migration", s.MigrationID, "path", path, "refused", strings.Join(left, ", "))
}
