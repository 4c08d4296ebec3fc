// SPDX-License-Identifier: Apache-2.0

// Package server is the registry's HTTP API: a handler for each of its routes (package
// routes), over the store, and over the relay where a host has to answer. It owns who asks, how requests
// are read, and how they are answered; what is allowed to happen is the store's
// to say.
package server

import (
	"log/slog"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// Program is what this program calls itself.
const Program = "volferry-registry"

// Config is what a Server needs.
type Config struct {
	Store     *workflow.Store
	Relay     *relay.Relay
	Metrics   *Metrics
	Authorize httpjson.Authorizer
	// TLSTrouble, where not nil, says which files of the TLS directory are not in
	// use as they are.
	TLSTrouble func() error
	// Certificates, where not nil, are those that the registry lives on.
	Certificates func() []mtls.Lifetime
	// Scraped, where not nil, says what is wrong with the server of the metrics.
	Scraped func() []api.Check
	Version string
	Log     *slog.Logger
}

// Server answers the API's requests.
type Server struct {
	Config
	since  time.Time
	limits limits
}

// New returns a server over an open store.
func New(c Config) *Server {
	return &Server{Config: c, since: time.Now().UTC()}
}
