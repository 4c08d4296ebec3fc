// SPDX-License-Identifier: Apache-2.0

// Package server is the registry's HTTP API: one table of routes over the
// store. It owns how requests are read and answered; what is allowed to happen
// is the store's to say.
package server

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/registry/internal/store"
)

// Config is what a Server needs.
type Config struct {
	Store     *store.Store
	Metrics   *Metrics
	Authorize httpjson.Authorizer
	Version   string
	Log       *slog.Logger
}

// Server answers the API's requests.
type Server struct {
	Config
	since time.Time
}

// New returns a server over an open store.
func New(c Config) *Server {
	return &Server{Config: c, since: time.Now().UTC()}
}

// Handler serves Routes.
func (s *Server) Handler() http.Handler {
	return httpjson.NewHandler(httpjson.Config{
		Routes:    s.Routes(),
		Authorize: s.Authorize,
		Log:       s.Log,
		Observe:   s.Metrics.request,
	})
}
