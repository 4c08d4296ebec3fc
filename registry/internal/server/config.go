// SPDX-License-Identifier: Apache-2.0

package server

import (
	"log/slog"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// Program is the name of this program.
const Program = "volferry-registry"

// Config has the dependencies of a Server.
type Config struct {
	Store     *workflow.Store
	Relay     *relay.Relay
	Metrics   *Metrics
	Authorize httpjson.Authorizer
	// TLSTrouble, if not nil, returns an error that names the TLS files that could not be loaded.
	TLSTrouble func() error
	// Certificates, if not nil, returns the lifetimes of the registry's certificates.
	Certificates func() []mtls.Lifetime
	// Scraped, if not nil, returns checks of the metrics server.
	Scraped func() []api.Check
	Version string
	Log     *slog.Logger
}
