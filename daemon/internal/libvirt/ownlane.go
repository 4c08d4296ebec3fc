// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// byItself makes calls on their own connection, so that they neither wait for other calls nor
// delay them. The connection is closed when the shared one is lost.
func (c *Conn) byItself(ctx context.Context, do func(context.Context, *session) error) error {
	l, err := c.current()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", hv.ErrUnavailable, context.Cause(ctx))
	}
	s, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	go func() {
		select {
		case <-l.reads.lost():
			s.close()
		case <-s.lost():
		}
	}()
	return do(ctx, s)
}

// askPool makes calls that may wait for the storage of a pool and change nothing. If the caller
// leaves, the call continues until libvirt has answered.
func (c *Conn) askPool(ctx context.Context, pool string, do func(context.Context, *session) error) error {
	leave, err := c.pools.enter(ctx, "pool "+pool)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer leave()
		done <- c.byItself(context.WithoutCancel(ctx), do)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", hv.ErrUnavailable, context.Cause(ctx))
	}
}

// changePool is askPool for changing calls: if ctx has ended, they are not made, but the end of
// ctx does not interrupt them; see modify.
func (c *Conn) changePool(ctx context.Context, pool string, do func(context.Context, *session) error) error {
	leave, err := c.pools.enter(ctx, "pool "+pool)
	if err != nil {
		return err
	}
	defer leave()
	return c.byItself(ctx, func(ctx context.Context, s *session) error { return do(context.WithoutCancel(ctx), s) })
}

// poolReads returns the session for calls on all pools. libvirt keeps a pool locked while it looks
// at its storage, and the list of all pools waits for it.
func (c *Conn) poolReads(ctx context.Context) (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.poolReads.session(ctx, c.dial)
}
