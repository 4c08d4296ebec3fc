// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// byItself makes calls on a connection of their own, so that they wait for no others
// and keep no place from them. It is lost when the shared one is.
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

// askPool makes calls that may wait for the storage of a pool and change nothing. If
// its caller leaves, it goes on until libvirt has answered.
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

// changePool is askPool for calls that change something: the end of ctx keeps them
// from being made and does not end them, see modify.
func (c *Conn) changePool(ctx context.Context, pool string, do func(context.Context, *session) error) error {
	leave, err := c.pools.enter(ctx, "pool "+pool)
	if err != nil {
		return err
	}
	defer leave()
	return c.byItself(ctx, func(ctx context.Context, s *session) error { return do(context.WithoutCancel(ctx), s) })
}

// poolReads is the session for what is asked about all pools. libvirt keeps a pool
// locked while it looks at its storage, and the list of all waits for it.
func (c *Conn) poolReads(ctx context.Context) (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.poolReads.session(ctx, c.dial)
}
