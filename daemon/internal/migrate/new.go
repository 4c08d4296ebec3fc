// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// New makes a manager, registers its plans with the runner, and follows the runner's ops. journal
// is the runner's journal. host returns this host once the registry knows it.
func New(cfg Config, ports move.Ports, runner *op.Runner, journal Journal, host func(context.Context) (move.Host, error), log *slog.Logger) *Manager {
	m := &Manager{
		cfg: cfg, ports: ports, runner: runner, journal: journal, host: host, log: log, watch: newWatchers(), opEnds: newWatchers(), glances: chainGlances{}, endsDue: make(chan struct{}, 1),
		admission: request.Admission{Runner: runner, Journal: journal, Log: log, Now: ports.Now, Kinds: []string{place.KindDeleteSource}},
	}
	m.env = plans.NewEnv(ports, plans.NewHistory(journal, runner.Status), host, m.watch.notify, log)
	m.env.Move.OnForgotten(m.recordEnds)
	runner.Register(m.Plans()...)
	runner.OnChange(m.changed)
	runner.OnFinished(m.finished)
	return m
}
