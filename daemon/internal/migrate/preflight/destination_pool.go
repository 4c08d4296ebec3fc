// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

// findPool sets the pool of an existing dst, if an active pool of this host lists it, as an
// adoption by path does. The pool neither makes nor removes dst. In a move that the registry
// leads, dst stays as reserved, the same on all hosts.
func (c *Checks) findPool(ctx context.Context, s *move.Spec) (err error) {
	switch {
	case s.LedByRegistry():
		return nil
	case s.ConnectDst:
		s.Dst, err = location.InPoolOnceConnected(ctx, c.hv, s.Dst)
	case !s.CreateDst:
		s.Dst, err = location.InPool(ctx, c.hv, s.Dst)
	}
	return look.HVRefusal(err)
}
