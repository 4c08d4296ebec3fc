// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// Config is what the operator decides about attachments on this host.
type Config struct {
	// Rules say where a volume in no pool may be when it is attached.
	Rules location.Rules
	// UnplugTimeout is how long a running guest has to let go of a disk before
	// it keeps it. 0 is DefaultUnplugTimeout.
	UnplugTimeout time.Duration
	// BootID tells one boot of this host from another.
	BootID string
}

// DefaultUnplugTimeout is long enough for a guest that is busy, and short enough
// for a person who waits.
const DefaultUnplugTimeout = 30 * time.Second

// Host is this host as the registry knows it.
type Host struct {
	ID    string
	Name  string
	Epoch int64
}

// Manager attaches and detaches volumes. It is safe for concurrent use.
type Manager struct {
	rules     location.Rules
	env       *env
	journal   Journal
	host      func(context.Context) (Host, error)
	admission request.Admission
}

// New makes a manager. Host answers for this host once the registry knows it.
// Bind the manager to the runner that runs its Plans before any other call.
func New(cfg Config, ports Ports, journal Journal, host func(context.Context) (Host, error), log *slog.Logger) *Manager {
	if cfg.UnplugTimeout <= 0 {
		cfg.UnplugTimeout = DefaultUnplugTimeout
	}
	return &Manager{
		rules:     cfg.Rules,
		env:       &env{Ports: ports, host: host, unplugTimeout: cfg.UnplugTimeout, bootID: cfg.BootID, log: log},
		journal:   journal,
		host:      host,
		admission: request.Admission{Journal: journal, Log: log, Kinds: kinds, Waits: waits},
	}
}

// Bind gives the manager its runner.
func (m *Manager) Bind(r *op.Runner) {
	m.admission.Runner = r
	m.env.submit = r.Submit
	m.env.queued = m.queued
}

// env is what the steps share.
type env struct {
	Ports
	host          func(context.Context) (Host, error)
	unplugTimeout time.Duration
	bootID        string
	log           *slog.Logger
	late          late
	// submit stores and starts an op that follows another one.
	submit func(context.Context, op.Op) error
	// queued are the releases that the registry was not there for.
	queued func() []input
}
