// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"strings"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

func (e *Env) noteMade(ctx context.Context, r *op.Run, s *move.Spec, note move.DstNote) error {
	if note.Print != "" {
		return nil
	}
	if s.Dst.Format == api.FormatRaw && s.DstKind().Filesystem && s.SrcKind().Filesystem {
		left, err := e.rights.StoreLike(ctx, s.Dst.Path, s.Src.Path)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			e.log.Warn("an image is not stored as src is", "migration", s.MigrationID, "path", s.Dst.Path, "lacks", strings.Join(left, ", "))
		}
	}
	err := e.giveDstRights(ctx, s)
	if err != nil {
		return err
	}
	if note.Print, err = e.images.Fingerprint(ctx, s.Dst.Path); err != nil {
		return err
	}
	return r.Note(ctx, note)
}

// dstLeft refuses to remove dst while the instance's disk, or another user on this host, uses dst.
func (e *Env) dstLeft(ctx context.Context, s *move.Spec) error {
	if s.Attached() {
		disk, err := e.look.ConfirmDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.Config == move.OnDst || disk.Live == move.OnDst || disk.Mirror != nil {
			return op.UnknownOutcome(look.ChainChanged(s, disk))
		}
	}
	return e.look.NotNamed(ctx, s.Dst.Path)
}
