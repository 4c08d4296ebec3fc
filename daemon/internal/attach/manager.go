// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// Config has the operator's settings for attachments.
type Config struct {
	Rules location.Rules
	// UnplugTimeout is how long a detach waits for a running guest to release a disk; after that
	// the guest keeps the disk. 0 is DefaultUnplugTimeout.
	UnplugTimeout time.Duration
}

// DefaultUnplugTimeout is long enough for a busy guest, and short enough for a waiting person.
const DefaultUnplugTimeout = 30 * time.Second

// Manager attaches and detaches volumes. It is safe for concurrent use.
type Manager struct {
	env       *env
	host      func(context.Context) (Host, error)
	admission request.Admission
}

// New returns a manager and registers its plans with the runner. host returns this host's identity
// once the registry has sent it.
func New(cfg Config, ports Ports, runner *op.Runner, journal Journal, host func(context.Context) (Host, error), log *slog.Logger) *Manager {
	if cfg.UnplugTimeout <= 0 {
		cfg.UnplugTimeout = DefaultUnplugTimeout
	}
	m := &Manager{
		env:       &env{Ports: ports, rules: cfg.Rules, runner: runner, host: host, unplugTimeout: cfg.UnplugTimeout, log: log},
		host:      host,
		admission: request.Admission{Runner: runner, Journal: journal, Log: log, Kinds: kinds, Waits: waits},
	}
	runner.Register(m.Plans()...)
	return m
}

// Plans returns the plans of the attachments' op kinds.
func (m *Manager) Plans() []op.Plan { return m.env.plans() }
