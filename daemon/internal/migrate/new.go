// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/migrate/changes"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/monitor"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/parts"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/migrate/preflight"
	"github.com/volferry/volferry/daemon/internal/migrate/released"
	"github.com/volferry/volferry/daemon/internal/migrate/which"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// New makes a manager, registers its plans with the runner, and follows the runner's ops. journal
// is the runner's journal. host returns this host once the registry knows it.
func New(cfg move.Config, ports move.Ports, runner *op.Runner, journal history.Journal, host func(context.Context) (move.Host, error), log *slog.Logger) *Manager {
	m := &Manager{
		cfg: &cfg, ports: ports, runner: runner, log: log, watch: changes.NewFeed(), opEnds: changes.NewFeed(), endsDue: make(chan struct{}, 1),
		admission: request.Admission{Runner: runner, Journal: journal, Log: log, Now: ports.Now, Kinds: []string{place.KindDeleteSource}},
	}
	m.env = plans.NewEnv(ports, plans.NewHistory(journal, runner.Status), host, m.watch.Notify, log)
	m.History = &history.Reader{Journal: journal, Runner: runner}
	m.Which = which.New(m.cfg, &m.ports, m.env, m.History, host)
	m.Released = released.New(&m.ports, m.env, m.History, m.Which, &m.admission, log)
	m.Preflight = preflight.New(m.cfg, &m.ports, m.env, m.History, m.Released, m.Which, host, log)
	m.Monitor = monitor.New(m.cfg, &m.ports, m.env, m.History, m.Preflight, m.Which, m.watch, m.opEnds, log)
	m.Parts = parts.New(&m.ports, m.env, m.History, m.Preflight, &m.admission, host, log)
	m.env.Move.OnForgotten(m.recordEnds)
	runner.Register(m.Plans()...)
	runner.OnChange(m.changed)
	runner.OnFinished(m.finished)
	return m
}
