// SPDX-License-Identifier: Apache-2.0

// Package server is the registry's HTTP API: a handler for each of its routes (package
// routes), over the store, and over the relay if a host has to answer. It knows who the
// caller is, how requests are read, and how they are answered. What is allowed is for the
// store to decide.
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

// Program is the name of this program.
const Program = "volferry-registry"

// Config is what a Server needs.
type Config struct {
	Store     *workflow.Store
	Relay     *relay.Relay
	Metrics   *Metrics
	Authorize httpjson.Authorizer
	// TLSTrouble, if not nil, returns which files of the TLS directory are not in use as
	// they are.
	TLSTrouble func() error
	// Certificates, if not nil, returns the lifetimes of the registry's certificates.
	Certificates func() []mtls.Lifetime
	// Scraped, if not nil, returns what is wrong with the server of the metrics.
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
