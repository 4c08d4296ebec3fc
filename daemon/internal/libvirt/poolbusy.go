// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// askPool makes calls that may wait for the storage of a pool and change nothing. If ctx ends, it
// returns, and the calls continue until libvirt has answered.
func (ps *pools) askPool(ctx context.Context, pool string, do func(context.Context, *session) error) error {
	leave, err := ps.busy.enter(ctx, "pool "+pool)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer leave()
		done <- ps.connection.byItself(context.WithoutCancel(ctx), do)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", hv.ErrUnavailable, context.Cause(ctx))
	}
}

// changePool is askPool for changing calls. It begins none after the end of ctx, but the end of
// ctx does not interrupt a call that has begun (see modify).
func (ps *pools) changePool(ctx context.Context, pool string, do func(context.Context, *session) error) error {
	leave, err := ps.busy.enter(ctx, "pool "+pool)
	if err != nil {
		return err
	}
	defer leave()
	return ps.connection.byItself(ctx, func(ctx context.Context, s *session) error { return do(context.WithoutCancel(ctx), s) })
}
