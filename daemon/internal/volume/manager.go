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

// Config has the operator's settings for volumes.
type Config struct {
	// Rules limit where an image that is adopted by path may be.
	Rules location.Rules
	// SharedPools are shared pools, in addition to pools of a shared type.
	SharedPools []string
}

// Manager creates, adopts, resizes and deletes volumes. ref is an id, its beginning, or a name. A
// repeated request gets the same answer. A Manager is safe for concurrent use.
type Manager struct {
	rules     location.Rules
	shared    []string
	env       *env
	host      func(context.Context) (string, error)
	admission request.Admission
	log       *slog.Logger
}

// New returns a manager and registers its plans with the runner. host returns this host's id once
// the registry has sent it.
func New(cfg Config, ports Ports, runner *op.Runner, journal op.Journal, host func(context.Context) (id string, err error), log *slog.Logger) *Manager {
	m := &Manager{
		rules:  cfg.Rules,
		shared: cfg.SharedPools,
		env:    &env{ports, log}, host: host, log: log,
		admission: request.Admission{Runner: runner, Journal: journal, Log: log, Busy: api.CodeConflict, Kinds: []string{kindResize}},
	}
	runner.Register(m.Plans()...)
	return m
}

// Plans returns the plans of the volumes' op kinds.
func (m *Manager) Plans() []op.Plan { return m.env.plans() }
