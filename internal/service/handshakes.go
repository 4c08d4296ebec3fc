// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/humanize"
)

// handshakeTimeout bounds a TLS handshake.
const handshakeTimeout = 10 * time.Second

// TLS configures a TLS server and bounds its connections.
type TLS struct {
	Config *tls.Config
	// Caller returns the name of a peer, the same for all its connections. An error closes the
	// connection.
	Caller func(tls.ConnectionState) (string, error)
	// Bounds must all be above 0.
	Bounds Bounds
	// OnRefused is called with the bound's name for each refused connection. It may be nil.
	OnRefused func(bound string)
}

// Bounds limit the open handshakes and connections of a server.
type Bounds struct {
	// Handshakes bounds the open handshakes of all peers together. Further connections wait.
	Handshakes int
	// Connections above HandshakesPerAddress or ConnectionsPerCaller are closed.
	HandshakesPerAddress int
	ConnectionsPerCaller int
}

// The names of the bounds.
const (
	BoundAddress = "address"
	BoundCaller  = "caller"
)

// handshakes is a listener that returns connections after their TLS handshake. It bounds both, by
// address before the handshake and by name after it, which the HTTP server cannot do.
type handshakes struct {
	net.Listener
	tls       TLS
	refusals  *refusals
	slots     chan struct{}
	addresses *counts[netip.Addr]
	callers   *counts[string]

	done   chan accepted
	ctx    context.Context //nolint:containedctx // it lives as long as the listener; Close ends it
	cancel context.CancelFunc
	all    sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

func newHandshakes(ctx context.Context, inner net.Listener, t TLS, log *slog.Logger) *handshakes {
	h := &handshakes{
		Listener: inner, tls: t, refusals: newRefusals(log),
		slots: make(chan struct{}, t.Bounds.Handshakes), done: make(chan accepted),
		addresses: newCounts[netip.Addr](t.Bounds.HandshakesPerAddress), callers: newCounts[string](t.Bounds.ConnectionsPerCaller),
	}
	h.ctx, h.cancel = context.WithCancel(ctx)
	h.all.Go(h.acceptAll)
	return h
}

// Accept returns connections of type *tls.Conn.
func (h *handshakes) Accept() (net.Conn, error) {
	select {
	case a := <-h.done:
		return a.conn, a.err
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close cancels open handshakes.
func (h *handshakes) Close() error {
	h.cancel()
	err := h.Listener.Close()
	h.all.Wait()
	return err
}

func (h *handshakes) acceptAll() {
	for {
		select {
		case h.slots <- struct{}{}:
		case <-h.ctx.Done():
			return
		}
		conn, err := h.Listener.Accept()
		if err != nil {
			<-h.slots
			if !h.deliver(nil, err) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		h.all.Go(func() {
			defer func() { <-h.slots }()
			h.greet(conn)
		})
	}
}

func (h *handshakes) greet(raw net.Conn) {
	from := raw.RemoteAddr()
	address := addressOf(from)
	if !h.addresses.enter(address) {
		h.refuse(BoundAddress, from, fmt.Sprintf("its address has %s under way", humanize.Count(h.tls.Bounds.HandshakesPerAddress, "handshake")))
		_ = raw.Close()
		return
	}
	leaves := &leaver{Conn: raw, left: func() {}}
	conn := tls.Server(leaves, h.tls.Config)
	caller, err := h.shake(conn)
	h.addresses.leave(address)
	if err != nil {
		_ = conn.Close()
		if h.ctx.Err() == nil {
			h.refusals.report(from, err.Error())
		}
		return
	}
	if !h.callers.enter(caller) {
		h.refuse(BoundCaller, from, fmt.Sprintf("%s has %s", caller, humanize.Count(h.tls.Bounds.ConnectionsPerCaller, "connection")))
		_ = conn.Close()
		return
	}
	leaves.left = sync.OnceFunc(func() { h.callers.leave(caller) })
	if !h.deliver(conn, nil) {
		_ = conn.Close()
	}
}

func (h *handshakes) shake(conn *tls.Conn) (caller string, err error) {
	ctx, cancel := context.WithTimeout(h.ctx, handshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return "", fmt.Errorf("the handshake was not over after %s", handshakeTimeout)
		}
		return "", err //nolint:wrapcheck // it is logged, with its peer
	}
	return h.tls.Caller(conn.ConnectionState())
}

func (h *handshakes) deliver(conn net.Conn, err error) bool {
	select {
	case h.done <- accepted{conn, err}:
		return true
	case <-h.ctx.Done():
		return false
	}
}

func (h *handshakes) refuse(bound string, from net.Addr, why string) {
	h.refusals.report(from, why)
	if h.tls.OnRefused != nil {
		h.tls.OnRefused(bound)
	}
}

type leaver struct {
	net.Conn
	left func()
}

func (l *leaver) Close() error {
	err := l.Conn.Close()
	l.left()
	return err
}

func addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

type counts[K comparable] struct {
	most int
	mu   sync.Mutex
	of   map[K]int
}

func newCounts[K comparable](most int) *counts[K] {
	return &counts[K]{most: most, of: map[K]int{}}
}

func (c *counts[K]) enter(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[key] >= c.most {
		return false
	}
	c.of[key]++
	return true
}

func (c *counts[K]) leave(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[key]--; c.of[key] == 0 {
		delete(c.of, key)
	}
}
