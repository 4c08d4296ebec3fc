// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/httpjson"
)

const (
	// headerTimeout and idleTimeout keep a peer that does nothing from holding
	// a connection. There is no timeout for a whole request: some are streams, and
	// some wait for an event.
	headerTimeout = 10 * time.Second
	// requestTimeout bounds how long a request with its body may take to come. The
	// server takes this bound away once it has the whole body.
	requestTimeout = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	// graceful is how long requests may take to end by themselves when the
	// daemon stops; then their contexts end, which is how streams do.
	graceful = time.Second
	// forceful is how long requests may take after that.
	forceful = 5 * time.Second

	// The most connections at a time. Above it they wait to be accepted. A site of
	// 10,000 hosts has a connection of each for the long poll of its tasks, and one
	// more for what it asks; a socket of one machine has its administrators and a
	// daemon.
	maxSocketConnections = 512
	maxTLSConnections    = 32768
)

// Server is an HTTP server as a task.
type Server struct {
	name   string
	listen func(context.Context) (net.Listener, error)
	limit  *limit
	tls    *TLS // nil for plain HTTP
	http   *http.Server
	log    *slog.Logger
	ready  chan struct{}
	addr   net.Addr
}

// SocketServer serves h at the Unix socket path, which belongs to the group gid (a negative
// gid is the process's own group). Requests know their peer (httpjson.PeerOf).
func SocketServer(path string, gid int, h http.Handler, log *slog.Logger) *Server {
	s := newServer("socket "+path, h, log, maxSocketConnections, func(ctx context.Context) (net.Listener, error) {
		return listenSocket(ctx, path, gid)
	})
	s.http.ConnContext = httpjson.ConnContext
	return s
}

// TLSServer serves h at the TCP address over TLS. It uses the socket that systemd has
// opened there, if there is one. Requests know their peer by http.Request.TLS. Refused
// connections are logged, but not more often than a reader of the log can bear.
func TLSServer(address string, t TLS, h http.Handler, log *slog.Logger) *Server {
	s := newServer("TLS "+address, h, log, maxTLSConnections, func(ctx context.Context) (net.Listener, error) {
		if l, err := handedOver("tcp", address); l != nil || err != nil {
			return keptAlive{l}, err
		}
		l, err := (&net.ListenConfig{KeepAliveConfig: keepAlive}).Listen(ctx, "tcp", address)
		return l, withoutNetwork(err)
	})
	s.tls = &t
	return s
}

// withoutNetwork says what helps where the unit of a program keeps it from a network of its own.
func withoutNetwork(err error) error {
	if !errors.Is(err, unix.EAFNOSUPPORT) {
		return err
	}
	return fmt.Errorf("%w: the unit of this program has no network of its own, so systemd has to open the address: enable the socket unit that has it, and restart the service", err)
}

func newServer(name string, h http.Handler, log *slog.Logger, maxConnections int, listen func(context.Context) (net.Listener, error)) *Server {
	s := &Server{
		name:   name,
		listen: listen,
		limit:  newLimit(name, maxConnections, log),
		log:    log,
		http: &http.Server{
			Handler:           withWriteTimeout(h),
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       requestTimeout,

			IdleTimeout:    idleTimeout,
			MaxHeaderBytes: 64 << 10,
			ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
		ready: make(chan struct{}),
	}
	s.http.ConnState = s.limit.connState
	return s
}

// String names the server by what it listens to.
func (s *Server) String() string { return s.name }

// Ready is closed once the server accepts connections.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr returns where the server listens, once it is ready.
func (s *Server) Addr() net.Addr { return s.addr }

// Run serves until ctx ends, and then waits for running requests to end.
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.listen(ctx)
	if err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	s.addr = listener.Addr()
	if s.tls != nil {
		listener = newHandshakes(context.WithoutCancel(ctx), listener, *s.tls, s.log)
	}
	listener = s.limit.listener(listener)
	requests, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer endRequests()
	s.http.BaseContext = func(net.Listener) context.Context { return requests }

	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	close(s.ready)
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	stop := time.AfterFunc(graceful, endRequests)
	defer stop.Stop()
	err = s.shutdown(context.WithoutCancel(ctx))
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// shutdown waits for running requests, and cuts those off that do not end.
func (s *Server) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, graceful+forceful)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	if err != nil {
		return fmt.Errorf("stop server: %w", err)
	}
	return nil
}
