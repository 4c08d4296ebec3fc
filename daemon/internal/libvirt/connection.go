// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// connection has the sessions with libvirtd, and passes on its events. It implements Up,
// Answers and Events of hv.Host.
type connection struct {
	sockets     []string
	callTimeout time.Duration
	feed        hv.Feed

	mu   sync.Mutex
	link *link // nil while down
}

// link is the sessions of a connection. libvirtd processes five requests of a client at a time, so
// a few calls that wait for storage block all others of their session. Longer calls, and pool
// calls, have a connection for each call (byItself).
type link struct {
	reads   *session // calls that return soon
	changes *session // changes of domains, within callTimeout
	// windows is for the calls that begin and end the pause of a guest: Suspend, SetConfigChain,
	// Resume. Another guest's storage must not prolong the pause.
	windows *session
	// jobEnds is for Pivot and AbortJob, which drain and flush.
	jobEnds *session

	// poolReads may be lost and made again: a pool may hang while its server is down, which does
	// not mean that libvirtd hangs.
	poolReads lane
}

func (l *link) core() []**session {
	return []**session{&l.reads, &l.changes, &l.windows, &l.jobEnds}
}

func (l *link) close() {
	for _, s := range l.core() {
		if *s != nil {
			(*s).close()
		}
	}
	l.poolReads.close()
}

func (c *connection) Up() bool { return c.feed.Up() }

func (c *connection) Events(ctx context.Context) <-chan hv.Event { return c.feed.Subscribe(ctx) }

func (c *connection) dial(ctx context.Context) (*session, error) {
	var errs []error
	for _, path := range c.sockets {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err == nil {
			return openSession(ctx, conn, c.callTimeout)
		}
		if !errors.Is(err, os.ErrNotExist) || len(c.sockets) == 1 {
			return nil, fmt.Errorf("connect to libvirt: %w", err)
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("connect to libvirt: %w", errors.Join(errs...))
}

func (c *connection) setLink(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = l
}

func (c *connection) reads() (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.reads, nil
}

func (c *connection) changes() (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.changes, nil
}

func (c *connection) windows() (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.windows, nil
}

func (c *connection) jobEnds() (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.jobEnds, nil
}

func (c *connection) current() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return nil, errNotConnected
	}
	return c.link, nil
}

// byItself makes calls on their own connection, so that they neither wait for other calls nor
// delay them. The connection is closed when the shared one is lost.
func (c *connection) byItself(ctx context.Context, do func(context.Context, *session) error) error {
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

// poolReads returns the session for calls on all pools. libvirt keeps a pool locked while it looks
// at its storage, and the list of all pools waits for it.
func (c *connection) poolReads(ctx context.Context) (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.poolReads.session(ctx, c.dial)
}
