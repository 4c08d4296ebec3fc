// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"sync"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// lane is a session that may be lost without the other sessions. It is made when needed, and again
// after a loss.
type lane struct {
	mu     sync.Mutex
	s      *session
	closed bool
	making chan struct{}
	stop   context.CancelFunc
}

func (l *lane) session(ctx context.Context, dial func(context.Context) (*session, error)) (*session, error) {
	for {
		s, made, err := l.begin(ctx, dial)
		if s != nil || err != nil {
			return s, err
		}
		select {
		case <-made:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", hv.ErrUnavailable, context.Cause(ctx))
		}
	}
}

func (l *lane) begin(ctx context.Context, dial func(context.Context) (*session, error)) (*session, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, nil, errNotConnected
	case l.s != nil && !l.s.isLost():
		return l.s, nil, nil
	case l.making != nil:
		return nil, l.making, nil
	}
	made := make(chan struct{})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l.making, l.stop = made, stop
	l.mu.Unlock() // libvirtd may hang: close must not wait
	s, err := dial(ctx)
	l.mu.Lock()
	l.making, l.stop = nil, nil
	close(made)
	if l.closed {
		if err == nil {
			s.close()
		}
		return nil, nil, errNotConnected
	}
	if err != nil {
		return nil, nil, err
	}
	l.s = s
	return s, nil, nil
}

var errNotConnected = fmt.Errorf("%w: not connected to libvirt", hv.ErrUnavailable)

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.stop != nil {
		l.stop()
	}
	if l.s != nil {
		l.s.close()
	}
}

// gate permits one call at a time about each thing, such as a pool: if the thing hangs, it blocks
// only one call of libvirtd.
type gate struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

// enter waits until the previous call about the thing is over, even if that call has lost its
// caller. Call leave when the new call is over.
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
