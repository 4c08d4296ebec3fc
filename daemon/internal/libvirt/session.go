// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// maxInFlight is how many requests a session sends at a time: fewer than libvirtd's
// max_client_requests (5), so that a call's watchdog does not run while the call queues in
// libvirtd.
const maxInFlight = 4

// longCallTimeout bounds the calls that wait for storage: pivot and abort (which drain and flush),
// a start, and pool calls. The heartbeat still notices a hung libvirtd within
// Config.CallTimeout.
const longCallTimeout = 15 * time.Minute

type session struct {
	lv    *golibvirt.Libvirt
	conn  *watchedConn
	slots chan struct{}
	// callTimeout is how long libvirtd may take to answer a call (Config.CallTimeout).
	callTimeout time.Duration
	// silent counts the unanswered calls that have lost their callers, by domain.
	silent silent
}

// openSession makes a session on a new connection. It closes the connection if that fails or takes
// longer than callTimeout.
func openSession(ctx context.Context, conn net.Conn, callTimeout time.Duration) (*session, error) {
	watched := &watchedConn{Conn: conn, lost: make(chan struct{})}
	s := &session{
		lv:    golibvirt.NewWithDialer(dialers.NewAlreadyConnected(watched)),
		conn:  watched,
		slots: make(chan struct{}, maxInFlight),

		callTimeout: callTimeout,
	}
	_, err := call(ctx, s, func(lv *golibvirt.Libvirt) (none, error) { return none{}, lv.Connect() })
	if err != nil {
		s.close()
		return nil, fmt.Errorf("open session: %w", err)
	}
	return s, nil
}

func (s *session) lost() <-chan struct{} { return s.conn.lost }

func (s *session) isLost() bool {
	select {
	case <-s.lost():
		return true
	default:
		return false
	}
}

func (s *session) close() { _ = s.conn.Close() }

type none = struct{}

// call is callWithin for a call that libvirtd answers soon.
func call[T any](ctx context.Context, s *session, do func(*golibvirt.Libvirt) (T, error)) (T, error) {
	return callWithin(ctx, s, s.callTimeout, do)
}

// callWithin runs one libvirt call. go-libvirt's calls take no context and wait for an answer
// forever, so each runs in its own goroutine. When ctx ends, the caller gets ErrUnavailable (the
// outcome is unknown) while the call continues. Without an answer within limit, libvirtd counts as
// hung, and callWithin closes the session, which ends the call.
func callWithin[T any](ctx context.Context, s *session, limit time.Duration, do func(*golibvirt.Libvirt) (T, error)) (T, error) {
	var zero T
	select {
	case s.slots <- struct{}{}:
	case <-s.lost():
		return zero, fmt.Errorf("%w: connection lost", hv.ErrUnavailable)
	case <-ctx.Done():
		return zero, fmt.Errorf("%w: %w", hv.ErrUnavailable, context.Cause(ctx))
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	watchdog := time.AfterFunc(limit, s.close)
	go func() {
		defer func() { <-s.slots }()
		defer watchdog.Stop()
		value, err := do(s.lv)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, classify(r.err)
	case <-ctx.Done():
		return zero, fmt.Errorf("%w: %w", hv.ErrUnavailable, context.Cause(ctx))
	}
}

// watchedConn notices that a connection is lost. It does not use go-libvirt's Disconnected: its
// channel is replaced after the goroutine that closes it has started, so a loss in between is
// never seen.
type watchedConn struct {
	net.Conn
	once sync.Once
	lost chan struct{}
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.fail()
	}
	return n, err
}

func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.fail()
	}
	return n, err
}

// Close implements net.Conn. It may be called twice.
func (c *watchedConn) Close() error {
	c.fail()
	if err := c.Conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close connection: %w", err)
	}
	return nil
}

func (c *watchedConn) fail() { c.once.Do(func() { close(c.lost) }) }

// silent counts, for each domain, the unanswered calls that lost their caller.
type silent struct {
	mu    sync.Mutex
	about map[string]int
}

func (s *silent) has(about string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.about[about] > 0
}

// while registers a call. From the end of ctx, the call counts as silent until answered is called.
// Call answered when libvirt has answered.
func (s *silent) while(ctx context.Context, about string) (answered func()) {
	counted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.add(about, 1)
		close(counted)
	})
	return func() {
		if !stop() {
			<-counted
			s.add(about, -1)
		}
	}
}

func (s *silent) add(about string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.about == nil {
		s.about = map[string]int{}
	}
	if s.about[about] += n; s.about[about] == 0 {
		delete(s.about, about)
	}
}
