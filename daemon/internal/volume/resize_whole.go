// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// whole resizes a volume that is its whole image: the image becomes larger.
type whole struct{ in *resizeInput }

func (w whole) check(ctx context.Context, e *env, foundBytes int64) error {
	in, l := w.in, w.in.Location
	switch {
	case foundBytes < l.SizeBytes:
		return request.Shrunk(in.VolumeName, l, foundBytes)
	case foundBytes > in.SizeBytes:
		return in.cannot(api.CodeInvalidArgument, "its image %s has %s already, and %s is less; say that size, or a larger one", l.Path, humanize.ExactBytes(foundBytes), humanize.ExactBytes(in.SizeBytes)).
			With("found_bytes", foundBytes)
	case foundBytes < in.SizeBytes && in.Block:
		return e.checkExtension(ctx, in, foundBytes)
	case foundBytes < in.SizeBytes:
		return e.checkGrowth(in, in.SizeBytes-foundBytes)
	}
	return nil
}

func (e *env) checkExtension(ctx context.Context, in *resizeInput, found int64) error {
	if in.Location.Pool == "" {
		return in.tooSmall(found)
	}
	pools, err := e.Pools.Pools(ctx)
	if err != nil {
		return fmt.Errorf("look at the pools: %w", err)
	}
	pool, err := location.Pool(pools, in.Location.Pool)
	if err != nil {
		return err
	}
	if !pool.Extends {
		return in.tooSmall(found)
	}
	rounded, err := e.Pools.RoundedBytes(ctx, pool.Name, in.SizeBytes)
	added := in.SizeBytes - found
	switch {
	case err != nil:
		return request.HV(err)
	case rounded != in.SizeBytes:
		return in.cannot(api.CodeInvalidArgument, "pool %s would make it %s large; say that size", pool.Name, humanize.ExactBytes(rounded)).With("size_bytes", rounded)
	case pool.FreeBytes < added:
		return in.cannot(api.CodeNoSpace, "pool %s has %s free, and the volume may grow by %s", pool.Name, humanize.ExactBytes(pool.FreeBytes), humanize.ExactBytes(added)).
			With("free_bytes", pool.FreeBytes).With("needed_bytes", added)
	}
	in.Extends = true
	return nil
}

func (whole) bytes(_ *hv.Domain, imageBytes int64) int64 { return imageBytes }

func (w whole) on(*hv.Disk) api.Location { return w.in.Location }
