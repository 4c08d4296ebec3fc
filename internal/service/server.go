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

	"github.com/volferry/volferry/internal/httpjson"
)

const (
	// headerTimeout and idleTimeout keep a peer that does nothing from holding
	// a connection. There is no timeout for a whole request: some are streams.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// graceful is how long requests may take to end by themselves when the
	// daemon stops; then their contexts end, which is how streams do.
	graceful = time.Second
	// forceful is how long requests may take after that.
	forceful = 5 * time.Second
)

// Server is an HTTP server as a task.
type Server struct {
	name   string
	listen func(context.Context) (net.Listener, error)
	http   *http.Server
	ready  chan struct{}
}

// SocketServer serves h at the Unix socket path, which is given to the group
// gid (negative for the process's own). Requests know their peer
// (httpjson.PeerOf).
func SocketServer(path string, gid int, h http.Handler, log *slog.Logger) *Server {
	s := newServer("socket "+path, h, log, func(ctx context.Context) (net.Listener, error) {
		return listenSocket(ctx, path, gid)
	})
	s.http.ConnContext = httpjson.ConnContext
	return s
}

// MetricsServer serves h, and nothing else, at /metrics of the TCP address.
func MetricsServer(address string, h http.Handler, log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return newServer("metrics "+address, mux, log, func(ctx context.Context) (net.Listener, error) {
		return new(net.ListenConfig).Listen(ctx, "tcp", address)
	})
}

func newServer(name string, h http.Handler, log *slog.Logger, listen func(context.Context) (net.Listener, error)) *Server {
	return &Server{
		name:   name,
		listen: listen,
		http: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: headerTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    64 << 10,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
		ready: make(chan struct{}),
	}
}

// String names the server by what it listens to.
func (s *Server) String() string { return s.name }

// Ready is closed once the server accepts connections.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends, and then lets running requests end.
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.listen(ctx)
	if err != nil {
		return fmt.Errorf("start server: %w", err)
	}
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
