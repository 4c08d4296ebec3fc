// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// IsAway reports whether a destination that is to be connected has no image at its path.
func (c *Checks) IsAway(ctx context.Context, path string) (bool, error) {
	_, err := c.images.Inspect(ctx, api.Location{Path: path, Format: api.FormatRaw})
	if errors.Is(err, image.ErrAbsent) {
		return true, nil
	}
	return false, err
}

// DestinationFreeBytes returns the free space for dst, including an overwritten file's.
func (c *Checks) DestinationFreeBytes(ctx context.Context, s *move.Spec) (int64, error) {
	if !s.CreateDst {
		free, err := c.images.FreeBytes(filepath.Dir(s.Dst.Path))
		if err != nil {
			return 0, err
		}
		has, err := c.images.AllocatedBytes(s.Dst.Path)
		return free + has, err
	}
	if s.Dst.Pool == "" {
		return c.images.FreeBytes(filepath.Dir(s.Dst.Path))
	}
	pools, err := c.hv.Pools(ctx)
	if err != nil {
		return 0, request.NoHypervisor(err)
	}
	pool, err := location.Pool(pools, s.Dst.Pool)
	if err != nil {
		return 0, err
	}
	return location.FreeBytes(pool, c.images.FreeBytes)
}
