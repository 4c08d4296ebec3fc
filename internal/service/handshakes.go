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

	"github.com/volferry/volferry/internal/api"
)

// handshakeTimeout is how long a TLS handshake may take. Clients give up then too.
const handshakeTimeout = 10 * time.Second

// TLS says how a server speaks TLS, and bounds what a peer can take of it.
type TLS struct {
	Config *tls.Config
	// Caller names the peer of a connection once the handshake is over; all connections of
	// one peer get the same name. An error ends the connection.
	Caller func(tls.ConnectionState) (string, error)
	// Bounds must all be above 0.
	Bounds Bounds
	// OnRefused is called for each connection that a bound refuses, with the bound's
	// name; nil for nobody.
	OnRefused func(bound string)
}

// Bounds are the most that a server has open at a time.
type Bounds struct {
	// Handshakes bounds the handshakes of all peers together; further connections wait to
	// be accepted.
	Handshakes int
	// HandshakesPerAddress bounds the handshakes of one address that are under way, and
	// ConnectionsPerCaller the connections of one caller. A connection above a bound is
	// closed.
	HandshakesPerAddress int
	ConnectionsPerCaller int
}

// The names of the bounds.
const (
	BoundAddress = "address"
	BoundCaller  = "caller"
)

// handshakes is a listener whose connections have their handshakes done. They are made
// here and not by the HTTP server, so that they can be counted: before a handshake
// is over an address is all that is known of a peer, and afterwards who it is.
type handshakes struct {
	net.Listener
	tls       TLS
	refusals  *refusals
	slots     chan struct{}
	addresses *counts[netip.Addr]
	callers   *counts[string]

	done   chan accepted
	ctx    context.Context //nolint:containedctx // it is of the listener's life, which Close ends
	cancel context.CancelFunc
	all    sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// newHandshakes accepts connections of inner until it is closed.
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

// Accept implements net.Listener: it returns connections of type *tls.Conn.
func (h *handshakes) Accept() (net.Conn, error) {
	select {
	case a := <-h.done:
		return a.conn, a.err
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It ends the handshakes that are not over.
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

// greet makes the handshake on a connection and hands the connection out.
func (h *handshakes) greet(raw net.Conn) {
	from := raw.RemoteAddr()
	address := addressOf(from)
	if !h.addresses.enter(address) {
		h.refuse(BoundAddress, from, fmt.Sprintf("its address has %s under way", api.Count(h.tls.Bounds.HandshakesPerAddress, "handshake")))
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
		h.refuse(BoundCaller, from, fmt.Sprintf("%s has %s", caller, api.Count(h.tls.Bounds.ConnectionsPerCaller, "connection")))
		_ = conn.Close()
		return
	}
	leaves.left = sync.OnceFunc(func() { h.callers.leave(caller) })
	if !h.deliver(conn, nil) {
		_ = conn.Close()
	}
}

// shake makes the handshake and says who is at the other end.
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

// deliver has Accept return what was accepted. It reports whether it did.
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

// leaver tells when a connection is closed, by whomever.
type leaver struct {
	net.Conn
	left func()
}

// Close implements net.Conn.
func (l *leaver) Close() error {
	err := l.Conn.Close()
	l.left()
	return err
}

// addressOf is the address of a peer, without its port.
func addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// counts are how many there are of each key, and at most so many.
type counts[K comparable] struct {
	most int
	mu   sync.Mutex
	of   map[K]int
}

func newCounts[K comparable](most int) *counts[K] {
	return &counts[K]{most: most, of: map[K]int{}}
}

// enter counts one more, and reports whether there was room for it.
func (c *counts[K]) enter(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[key] >= c.most {
		return false
	}
	c.of[key]++
	return true
}

// leave takes back an enter.
func (c *counts[K]) leave(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[key]--; c.of[key] == 0 {
		delete(c.of, key)
	}
}
