// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/volferry/volferry/internal/api"
)

// Server holds the handlers.
type Server struct {
	Deps
	tasksOnce    sync.Once
	tasksHandler http.Handler
	opWaits      atomic.Int64
}

// New returns a daemon's API.
func New(d Deps) *Server { return &Server{Deps: d} }

// logCaller logs the caller of a change at the socket, because the registry sees only this host.
// It does not log a plan or an estimate, which changes nothing.
func (s *Server) logCaller(r *http.Request, refused error) {
	who := whoAsks(r.Context())
	if refused != nil {
		s.Log.Warn("a change was asked for and refused", "method", r.Method, "path", r.URL.Path, "who", who, "err", refused)
		return
	}
	// Only a POST is a plan or an estimate: the name of a deleted object may have this ending.
	if r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, ":plan") || strings.HasSuffix(r.URL.Path, ":estimate")) {
		return
	}
	if key := r.Header.Get(api.IdempotencyKeyHeader); s.Callers != nil && key != "" {
		s.Callers.Note(key, who)
	}
	s.Log.Info("a change was asked for", "method", r.Method, "path", r.URL.Path, "who", who, "op", r.Header.Get(api.IdempotencyKeyHeader))
}
