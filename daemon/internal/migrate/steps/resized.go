// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

// CheckNotResized refuses to complete if somebody made the disk larger while it moves: the
// overlay has the new size, dst the old one, and QEMU mirrors into nothing but an equal.
// A cancel makes src as large as the overlay.
func (e *Env) CheckNotResized(ctx context.Context, s *Spec) error {
	if s.Method != MethodOverlay || !s.Attached() {
		return nil
	}
	_, err := e.images.CheckOverlay(ctx, s.Overlay, s.SrcImage(), s.SizeBytes())
	var size *image.SizeError
	if !errors.As(err, &size) {
		return nil // what else is wrong with it is found by who uses it
	}
	return api.Errorf(api.CodeSizeMismatch,
		"cannot complete the migration of volume %s: its disk was resized from %d to %d bytes while it moves, and %s has been made for the old size; cancel it while the instance runs (volferryctl migration cancel %s), which makes %s as large, and move the volume again",
		s.VolumeName, s.SizeBytes(), size.Bytes, s.Dst.Path, s.MigrationID, s.Src.Path).
		With("size_bytes", s.SizeBytes()).With("found_bytes", size.Bytes)
}
