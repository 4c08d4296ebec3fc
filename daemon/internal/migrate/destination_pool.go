// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
)

// findPool names the pool of a dst that is there before the move, if an active pool of this host
// has it: the volume is found in the pool afterwards, as one is that was adopted by its path. The
// pool neither makes nor removes it for the move. In a move that the registry leads, dst stays what
// the registry has reserved, which is the same place on every host of the volume's guests.
func (m *Manager) findPool(ctx context.Context, s *steps.Spec) (err error) {
	switch {
	case s.LedByRegistry():
		return nil
	case s.ConnectDst:
		s.Dst, err = location.InPoolOnceConnected(ctx, m.ports.HV, s.Dst)
	case !s.CreateDst:
		s.Dst, err = location.InPool(ctx, m.ports.HV, s.Dst)
	}
	return steps.HVRefusal(err)
}
