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
