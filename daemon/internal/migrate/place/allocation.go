// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// Allocate allocates space for the whole volume in a thick dst: before the first byte, to find
// missing space then, and afterwards, since zeros of a qcow2 image or a block job may have
// released space. dst keeps its content, and may be open.
func (e *Env) Allocate(ctx context.Context, s *move.Spec) error {
	if s.Allocation != api.AllocationThick {
		return nil
	}
	err := e.maker.Allocate(ctx, s.Dst.Path, s.DstFileBytes())
	if errors.Is(err, errors.ErrUnsupported) {
		e.log.Info("a destination gets its room as it is written to: its filesystem gives none before", "migration", s.MigrationID, "path", s.Dst.Path)
		return nil
	}
	return err
}
