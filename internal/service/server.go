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
	// headerTimeout and idleTimeout keep an idle peer from holding a connection. A whole request
	// has no timeout: some are streams, and some wait for an event.
	headerTimeout = 10 * time.Second
	// requestTimeout bounds how long a request with its body may take to arrive.
	requestTimeout = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	// graceful is how long requests may continue when the daemon stops. Then their contexts end,
	// which ends streams.
	graceful = time.Second
	// forceful is how long requests may continue after that.
	forceful = 5 * time.Second

	// Further connections wait. Each of 10,000 hosts has a connection for its long poll and
	// another for its requests.
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

// SocketServer returns a server of h at the Unix socket path. The socket's group is gid, or the
// process's group if gid is negative. httpjson.PeerOf returns the peer of a request.
func SocketServer(path string, gid int, h http.Handler, log *slog.Logger) *Server {
	s := newServer("socket "+path, h, log, maxSocketConnections, func(ctx context.Context) (net.Listener, error) {
		return listenSocket(ctx, path, gid)
	})
	s.http.ConnContext = httpjson.ConnContext
	return s
}

// TLSServer serves h over TLS at the TCP address, on the socket that systemd opened there, if any.
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

// withoutNetwork adds advice to an error if the program's unit forbids network sockets.
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

// String implements Task.
func (s *Server) String() string { return s.name }

// Ready is closed once the server accepts connections.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr returns the listener's address. Call it after Ready.
func (s *Server) Addr() net.Addr { return s.addr }

// Run serves until ctx ends, and then waits for running requests.
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
