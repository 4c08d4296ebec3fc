// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// checkDeletable refuses to delete a src that only its storage makes and removes: an NBD export or
// RBD image (DESIGN.md of package location), or a LUN or NVMe namespace in a connector's pool.
func (c *Checks) checkDeletable(ctx context.Context, s *move.Spec) error {
	kind := s.SrcKind()
	switch {
	case !s.DeleteSource:
		return nil
	case !kind.Deletable:
		return api.Errorf(api.CodeInvalidArgument, "%s is %s, which is removed where it was made; leave out --delete-source", s.Src.Path, kind.Name)
	case s.Src.Pool == "":
		return nil
	}
	pools, err := c.pools.Pools(ctx)
	if err != nil {
		return look.HVRefusal(err)
	}
	if slices.ContainsFunc(pools, func(p hv.PoolInfo) bool { return p.Name == s.Src.Pool && p.NoCreate }) {
		return api.Errorf(api.CodeInvalidArgument, "%s is of pool %s, whose volumes its target makes and removes; leave out --delete-source", s.Src.Path, s.Src.Pool)
	}
	return nil
}
