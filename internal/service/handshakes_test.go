// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// greeter is a TLS server that identifies callers by the server name in their handshake.
type greeter struct {
	t       *testing.T
	address string
	refused map[string]*atomic.Int64
	log     bytes.Buffer // read after the server has stopped
	stop    func()
}

func newGreeter(t *testing.T, bounds Bounds) *greeter {
	t.Helper()
	g := &greeter{t: t, refused: map[string]*atomic.Int64{BoundAddress: {}, BoundCaller: {}}}
	s := TLSServer("127.0.0.1:0", TLS{
		Config: serverConfig(), Bounds: bounds,
		Caller:    func(state tls.ConnectionState) (string, error) { return state.ServerName, nil },
		OnRefused: func(bound string) { g.refused[bound].Add(1) },
	}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }), slog.New(slog.NewTextHandler(&g.log, nil)))
	// All addresses of 127.0.0.0/8 lead to it.
	s.listen = func(ctx context.Context) (net.Listener, error) {
		return new(net.ListenConfig).Listen(ctx, "tcp4", "0.0.0.0:0")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	_, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	g.address = "127.0.0.1:" + port
	g.stop = sync.OnceFunc(func() {
		if err := stopped(cancel, done); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(g.stop)
	return g
}

// serverConfig returns a configuration with the certificate of net/http/httptest.
func serverConfig() *tls.Config {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS13}
}

// silent connects from an address and sends nothing.
func (g *greeter) silent(from string) net.Conn {
	g.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(g.t.Context(), "tcp", g.address)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask connects from an address as a caller and makes a request. The connection stays open.
func (g *greeter) ask(from, caller string) (net.Conn, error) {
	g.t.Helper()
	c := tls.Client(g.silent(from), &tls.Config{ServerName: caller, InsecureSkipVerify: true}) //nolint:gosec // it is of a test
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return nil, err
	}
	b := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, err
	}
	return c, nil
}

// askUntil asks until there is an answer: the server notices the end of a connection a little
// later.
func (g *greeter) askUntil(from, caller string) {
	g.t.Helper()
	for {
		_, err := g.ask(from, caller)
		if err == nil {
			return
		}
		if g.t.Context().Err() != nil {
			g.t.Fatal(err)
		}
	}
}

func TestHandshakesThatOneAddressDoesNotEndKeepNoOtherAddressOut(t *testing.T) {
	g := newGreeter(t, Bounds{Handshakes: 8, HandshakesPerAddress: 3, ConnectionsPerCaller: 8})
	held := []net.Conn{g.silent("127.0.0.2"), g.silent("127.0.0.2"), g.silent("127.0.0.2")}
	// One of the four is closed, the last to be accepted.
	fourth := g.silent("127.0.0.2")
	closed := make(chan error, 4)
	for _, c := range append(held, fourth) {
		go func() { _, err := c.Read(make([]byte, 1)); closed <- err }()
	}
	if err := <-closed; err == nil {
		t.Error("a connection above the bound was answered")
	}
	if n := g.refused[BoundAddress].Load(); n != 1 {
		t.Errorf("%d connections were refused, want 1", n)
	}
	if _, err := g.ask("127.0.0.3", "b"); err != nil {
		t.Errorf("another address: %v", err)
	}
	for _, c := range held {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	g.askUntil("127.0.0.2", "a")
	g.stop()
	if !strings.Contains(g.log.String(), `why="its address has 3 handshakes under way"`) {
		t.Errorf("log = %s", g.log.String())
	}
}

func TestConnectionsOfOneCallerKeepNoOtherOut(t *testing.T) {
	g := newGreeter(t, Bounds{Handshakes: 8, HandshakesPerAddress: 8, ConnectionsPerCaller: 2})
	first, err := g.ask("127.0.0.1", "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.ask("127.0.0.2", "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.ask("127.0.0.3", "a"); err == nil {
		t.Error("a third connection of a caller that may have two was answered")
	}
	if n := g.refused[BoundCaller].Load(); n != 1 {
		t.Errorf("%d connections were refused, want 1", n)
	}
	if _, err := g.ask("127.0.0.1", "b"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	g.askUntil("127.0.0.3", "a")
	g.stop()
	if !strings.Contains(g.log.String(), `why="a has 2 connections"`) {
		t.Errorf("log = %s", g.log.String())
	}
}

// queue is a listener with connections that a test makes.
type queue struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}
func (q *queue) Close() error   { close(q.closed); return nil }
func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }

func newQueue(t *testing.T, config *tls.Config, bounds Bounds) (*queue, *handshakes) {
	q := &queue{conns: make(chan net.Conn), closed: make(chan struct{})}
	return q, newHandshakes(t.Context(), q, TLS{Config: config, Bounds: bounds}, quietLog)
}

func TestHandshakeHasItsTime(t *testing.T) {
	config := serverConfig()
	synctest.Test(t, func(t *testing.T) {
		q, h := newQueue(t, config, Bounds{1, 1, 1})
		began := time.Now()
		ours, theirs := net.Pipe()
		q.conns <- theirs
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a silent peer reads %v, want the end", err)
		}
		if took := time.Since(began); took != handshakeTimeout {
			t.Errorf("its connection was closed after %s", took)
		}
		if err := errors.Join(ours.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestHandshakesAboveTheBoundOfAllWait(t *testing.T) {
	config := serverConfig()
	synctest.Test(t, func(t *testing.T) {
		q, h := newQueue(t, config, Bounds{Handshakes: 2, HandshakesPerAddress: 4, ConnectionsPerCaller: 4})
		first, theirs := net.Pipe()
		q.conns <- theirs
		second, theirs := net.Pipe()
		q.conns <- theirs
		third, theirs := net.Pipe()
		synctest.Wait()
		select {
		case q.conns <- theirs:
			t.Error("a third connection was accepted beside two handshakes")
		default:
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		q.conns <- theirs
		if err := errors.Join(second.Close(), third.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
}
