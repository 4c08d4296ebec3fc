// SPDX-License-Identifier: Apache-2.0

package service

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limit limits the connections of a server. It does not wrap them, since the peer's identity is
// read from the connection itself.
type limit struct {
	name  string
	slots chan struct{}
	log   *slog.Logger
	logs  *rate.Limiter
}

func newLimit(name string, most int, log *slog.Logger) *limit {
	return &limit{name: name, slots: make(chan struct{}, most), log: log, logs: rate.NewLimiter(rate.Every(time.Minute), 1)}
}

// listener accepts connections of inner while a slot is free.
func (l *limit) listener(inner net.Listener) net.Listener {
	return &limitedListener{Listener: inner, limit: l, closed: make(chan struct{})}
}

// connState is an http.Server.ConnState. It frees the slot of a connection that has ended.
func (l *limit) connState(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		<-l.slots
	}
}

// full logs, at most once a minute, that the limit is reached.
func (l *limit) full() {
	if l.logs.Allow() {
		l.log.Warn("no connection more is accepted until one ends", "server", l.name, "connections", cap(l.slots))
	}
}

type limitedListener struct {
	net.Listener
	limit  *limit
	once   sync.Once
	closed chan struct{}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.limit.slots <- struct{}{}:
	default:
		l.limit.full()
		select {
		case l.limit.slots <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.limit.slots
		return nil, err //nolint:wrapcheck // http.Server checks its type
	}
	return c, nil
}

func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
