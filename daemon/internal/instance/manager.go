// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/instance/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Config has the settings of the ops of instances.
type Config struct {
	// RequestTimeout is how long a request waits for a system that is away; 0 is
	// request.DefaultTimeout.
	RequestTimeout time.Duration
	// SaveDir is the directory of the save images of instances whose volume moves with all
	// guests paused.
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

// New makes a manager and registers its plans with the runner of its ops. Journal is the
// runner's journal. Host returns this host.
func New(cfg Config, ports Ports, runner *op.Runner, journal op.Journal, host func(context.Context) (Host, error), log *slog.Logger) *Manager {
	m := &Manager{
		admission: request.Admission{Runner: runner, Journal: journal, Log: log, Kinds: steps.Kinds, Timeout: cfg.RequestTimeout},
		env:       steps.NewEnv(steps.Config{SaveDir: cfg.SaveDir, BootID: cfg.BootID}, ports, runner, journal, host, log),
	}
	runner.Register(m.Plans()...)
	return m
}

// Plans returns the plans of all op kinds of instances.
func (m *Manager) Plans() []op.Plan { return m.env.Plans() }

// Unresumed says why guests are paused that a move has suspended and that libvirt does not resume.
func (m *Manager) Unresumed() []string { return m.env.Unresumed() }

// CheckForget refuses to forget an instance whose disks are not where its volumes are: nothing
// else says that its guest is on the wrong image. It changes nothing.
func (m *Manager) CheckForget(ctx context.Context, inst api.Instance) error {
	return m.env.CheckForget(ctx, inst)
}
