// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

var quietLog = slog.New(slog.DiscardHandler)

func TestConnectionAboveTheBoundWaitsUntilOneEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var log bytes.Buffer
	s := newServer("socket", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }), slog.New(slog.NewTextHandler(&log, nil)), 2,
		func(ctx context.Context) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "unix", path)
		})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	ask := func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		send(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		return c
	}
	first, second := ask(), ask()
	for _, c := range []net.Conn{first, second} {
		if got := answer(t, c); got != "200 hello" {
			t.Errorf("answer = %q", got)
		}
	}
	third := ask()
	answered := make(chan string, 1)
	go func() {
		b := make([]byte, 12)
		_, err := io.ReadFull(third, b)
		answered <- fmt.Sprint(string(b), err)
	}()
	// Both slots are taken by connections that stay, so the third is not accepted.
	if n := len(s.limit.slots); n != 2 {
		t.Errorf("%d connections are accepted, want 2", n)
	}
	select {
	case got := <-answered:
		t.Errorf("the third connection was answered: %q", got)
	default:
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if got := <-answered; got != "HTTP/1.1 200<nil>" {
		t.Errorf("after the first ended: %q", got)
	}
	if err := errors.Join(second.Close(), third.Close(), stopped(cancel, done)); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "no connection more is accepted") {
		t.Errorf("log = %q", log.String())
	}
}

func TestServerThatIsFullCanBeStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := newServer("socket", http.NotFoundHandler(), quietLog, 1,
		func(ctx context.Context) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "unix", path)
		})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	c, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := answer(t, c); !strings.HasPrefix(got, "404") {
		t.Errorf("answer = %q", got)
	}
	if err := errors.Join(stopped(cancel, done), c.Close()); err != nil {
		t.Error(err)
	}
}

func TestOnlySoManyRefusedHandshakesAreLogged(t *testing.T) {
	var log bytes.Buffer
	r := newRefusals(slog.New(slog.NewTextHandler(&log, nil)))
	for range 1000 {
		r.report(&net.TCPAddr{IP: net.IPv6loopback, Port: 1234}, "tls: client didn't provide a certificate")
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) < 10 || len(lines) > 40 {
		t.Errorf("%d lines were logged", len(lines))
	}
	if want := `from=[::1]:1234 why="tls: client didn't provide a certificate"`; !strings.Contains(lines[0], want) {
		t.Errorf("line = %s, want %s in it", lines[0], want)
	}
}
