// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// SealsMirrored makes StepSettle note the stamp that src had in the pause of a mirror, before the
// pivot: a mirror does not freeze src, and from the pivot on another guest may write src. It
// changes no other move.
//
// QEMU may write a qcow2 src when it closes src. So a qcow2 src that has changed since the pause
// gets no stamp: later writes to src are unknown, as after a stamp that could not be read.
func (e *Env) SealsMirrored(settle op.Step) op.Step {
	return seal.Followed(settle, func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if s.Method != move.MethodMirror {
			return nil
		}
		var paused blockjob.RunNote
		if noted, err := r.Noted(NameDstStep, &paused); err != nil || !noted {
			return err
		}
		now, err := e.images.Stamp(ctx, s.Src.Path)
		if err != nil {
			e.log.Warn(seal.LeftUnknown, "path", s.Src.Path, "err", err)
			return ctx.Err()
		}
		if change, _ := now.ChangeSince(&paused.Top); s.Src.Format != api.FormatRaw && change != image.Unchanged {
			e.log.Warn(seal.LeftUnknown, "path", s.Src.Path, "err", "it was written since the guest was paused, by QEMU as it closed it perhaps")
			return nil
		}
		return r.Note(ctx, seal.LeftSrcNote{Left: &paused.Top})
	})
}
