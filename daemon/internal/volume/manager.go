// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Config is what the operator decides about where the volumes of this host may
// be.
type Config struct {
	// AllowedPaths are the directories that an adopted image may be in. Empty:
	// everywhere but where the system lives.
	AllowedPaths []string
	// OwnDirs are Volferry's; no volume is there.
	OwnDirs []string
	// SharedPools are pools in which other hosts see the same bytes, besides those
	// that are so by their type.
	SharedPools []string
}

// Manager creates, adopts, resizes and deletes volumes. It is safe for concurrent use.
type Manager struct {
	rules   location.Rules
	shared  []string
	machine *machine
	host    func(context.Context) (string, error)
	desk    request.Desk
	log     *slog.Logger
}

// machine is what the steps share.
type machine struct {
	Ports
	log *slog.Logger
}

// New makes a manager. Host answers with the id of this host once the registry
// knows it. Bind the manager to the runner that runs its Plans before any other
// call.
func New(cfg Config, ports Ports, journal op.Journal, host func(context.Context) (id string, err error), log *slog.Logger) *Manager {
	return &Manager{
		rules:   location.Rules{AllowedPaths: cfg.AllowedPaths, Own: cfg.OwnDirs},
		shared:  cfg.SharedPools,
		machine: &machine{ports, log}, host: host, log: log,
		desk: request.Desk{Journal: journal, Log: log, Busy: api.CodeConflict, Kinds: []string{kindResize}},
	}
}

// Bind gives the manager its runner.
func (g *Manager) Bind(r *op.Runner) { g.desk.Runner = r }
