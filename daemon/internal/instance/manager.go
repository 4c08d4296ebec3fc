// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/instance/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// Config is what the ops of instances are told.
type Config struct {
	// Patience is how long a request waits for something that is away; 0 is
	// request.DefaultPatience.
	Patience time.Duration
	// SaveDir is where the save images of instances are kept while one of their volumes
	// moves with all guests paused.
	SaveDir string
	// BootID tells one boot of this host from another. If it is empty, each new Manager
	// counts as a new boot.
	BootID string
}

// Manager starts, stops, pauses, reboots and shelves the instances of this host.
// Safe for concurrent use.
type Manager struct {
	admission request.Admission
	env       *steps.Env
}

// Host is this host as the registry knows it.
type Host = steps.Host

// Ports are the systems that the ops of instances work on.
type Ports = steps.Ports

// New makes a manager. Host answers for this host. Bind the manager to the runner
// that runs its Plans before any other call.
func New(cfg Config, ports Ports, journal op.Journal, host func(context.Context) (Host, error), log *slog.Logger) *Manager {
	return &Manager{
		admission: request.Admission{Journal: journal, Log: log, Kinds: steps.Kinds, Patience: cfg.Patience},
		env:       steps.NewEnv(steps.Config{SaveDir: cfg.SaveDir, BootID: cfg.BootID}, ports, journal, host, log),
	}
}

// Plans returns the plans of all op kinds of instances, for the runner.
func (m *Manager) Plans() []op.Plan { return m.env.Plans() }

// Bind gives the manager its runner.
func (m *Manager) Bind(r *op.Runner) { m.admission.Runner, m.env.Runner = r, r }
