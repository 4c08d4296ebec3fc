// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"sync"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// lane is a session beside those of a connection, which may be lost by itself: it is
// made when it is needed, and anew when it was lost. The zero value is ready.
type lane struct {
	mu     sync.Mutex
	s      *session
	closed bool
}

// session returns the lane's session.
func (l *lane) session(ctx context.Context, dial func(context.Context) (*session, error)) (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("%w: not connected to libvirt", hv.ErrUnavailable)
	}
	if l.s != nil && !l.s.isLost() {
		return l.s, nil
	}
	s, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	l.s = s
	return s, nil
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.s != nil {
		l.s.close()
	}
}

// gate lets one call at a time through for each thing, so that a thing that hangs
// holds up no more than one call of libvirtd. The zero value is ready.
type gate struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

// enter waits for the call before, which may be one whose caller has left. What it
// returns is called when the new one is over.
func (g *gate) enter(ctx context.Context, about string) (leave func(), err error) {
	mine := make(chan struct{})
	for {
		before := g.put(about, mine)
		if before == nil {
			return func() { g.take(about, mine) }, nil
		}
		select {
		case <-before:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: libvirt has not answered an earlier call about %s: %w", hv.ErrUnavailable, about, context.Cause(ctx))
		}
	}
}

func (g *gate) put(about string, mine chan struct{}) (before chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if before = g.busy[about]; before != nil {
		return before
	}
	if g.busy == nil {
		g.busy = map[string]chan struct{}{}
	}
	g.busy[about] = mine
	return nil
}

func (g *gate) take(about string, mine chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.busy, about)
	close(mine)
}

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
