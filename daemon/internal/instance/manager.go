// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// Config is what the ops of instances are told.
type Config struct {
	// Patience is how long a request waits for something that is away; 0 is
	// request.DefaultPatience.
	Patience time.Duration
	// SaveDir is where the RAM of instances is kept while one of their volumes moves
	// with all guests paused.
	SaveDir string
	// BootID tells one boot of this host from another; empty if nobody can tell, which
	// is as if the host had been booted with each new Manager.
	BootID string
}

// Host is this host as the registry knows it.
type Host struct {
	ID    string
	Name  string
	Epoch int64
}

// is says whether a document names this host, which it does by name or by id.
func (h Host) is(named string) bool { return named != "" && (named == h.ID || named == h.Name) }

// Manager starts, stops, pauses, reboots and shelves the instances of this host.
// Safe for concurrent use.
type Manager struct {
	desk    request.Desk
	machine *machine
}

// machine is what the steps share.
type machine struct {
	Ports
	// host answers for this host once it was told who it is, registry away or not.
	host func(context.Context) (Host, error)
	log  *slog.Logger
	// saveDir is Config.SaveDir, boot Config.BootID.
	saveDir, boot string
	// submit stores and starts an op that follows another one.
	submit func(context.Context, op.Op) error
	// active are the ops that are not finished.
	active func() []op.Status
}

// New makes a manager. Host answers for this host. Bind the manager to the runner
// that runs its Plans before any other call.
func New(cfg Config, ports Ports, journal op.Journal, host func(context.Context) (Host, error), log *slog.Logger) *Manager {
	return &Manager{
		desk:    request.Desk{Journal: journal, Log: log, Kinds: kinds, Patience: cfg.Patience},
		machine: &machine{Ports: ports, host: host, log: log, saveDir: cfg.SaveDir, boot: cmp.Or(cfg.BootID, uuid.NewString()), active: func() []op.Status { return nil }},
	}
}

// Bind gives the manager its runner.
func (g *Manager) Bind(r *op.Runner) {
	g.desk.Runner = r
	g.machine.submit, g.machine.active = r.Submit, r.Active
}
