// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/instance/plans"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Config has the settings of instances.
type Config struct {
	// RequestTimeout is how long a request waits for a silent libvirt or registry; 0 is
	// request.DefaultTimeout.
	RequestTimeout time.Duration
	// SaveDir is the directory of save images.
	SaveDir string
	// BootID identifies this boot of the host. If it is empty, each Manager counts as a new boot.
	BootID string
}

// Manager makes the ops of this host's instances. It is safe for concurrent use.
type Manager struct {
	admission request.Admission
	env       *plans.Env
	ports     Ports
}

// Host is this host's identity in the registry.
type Host = subject.Host

// Ports are the systems that the ops of instances use.
type Ports = subject.Ports

// New returns a manager and registers its plans with the runner. journal is the runner's journal.
// host returns this host's identity.
func New(cfg Config, ports Ports, runner *op.Runner, journal op.Journal, host func(context.Context) (Host, error), log *slog.Logger) *Manager {
	m := &Manager{
		admission: request.Admission{Runner: runner, Journal: journal, Log: log, Kinds: subject.Kinds, Timeout: cfg.RequestTimeout},
		ports:     ports,
		env:       plans.NewEnv(subject.Config{SaveDir: cfg.SaveDir, BootID: cfg.BootID}, ports, runner, journal, host, log),
	}
	runner.Register(m.Plans()...)
	return m
}

// Plans returns the plans of the instances' op kinds.
func (m *Manager) Plans() []op.Plan { return m.env.Plans() }

// Unresumed returns why libvirt does not resume suspended guests.
func (m *Manager) Unresumed() []string { return m.env.Memory.Unresumed() }

// CheckForget makes the checks of a forget (repair.Env.CheckForget).
func (m *Manager) CheckForget(ctx context.Context, inst api.Instance) error {
	return m.env.Repair.CheckForget(ctx, inst)
}
