// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// Config is what the operator decides about migrations on this host.
type Config struct {
	// OverlayDir is where overlays live: a persistent filesystem of this host.
	OverlayDir string
	// Rules say where a destination given by path may be.
	Rules location.Rules
	// OverlayMinFreeBytes must be free in OverlayDir before a migration starts, or as much
	// as the overlay of the volume can grow, if that is less.
	OverlayMinFreeBytes int64
	// SharedPools are pools in which other hosts see the same bytes, besides those
	// whose type says so.
	SharedPools []string
}

// Manager starts migrations, brings them to their end and answers for them. It
// is safe for concurrent use.
type Manager struct {
	cfg     Config
	ports   steps.Ports
	env     *steps.Env
	journal Journal
	host    func(context.Context) (steps.Host, error)
	log     *slog.Logger
	runner  *op.Runner
	watch   *watchers

	// ended has the ids of migrations that were seen to be over. They stay so, and their
	// history is not read again to list the open ones.
	ended sync.Map

	// groups has the migration of each op, so that followers are told without a look at
	// the op.
	groups sync.Map

	retries retries

	chains  chainProblems
	ioStops ioStops

	// admission is locked from the look at a migration to the submission of its next op.
	// Migrations last, so that no request waits behind one.
	admission request.Admission
}

// New makes a manager. Host answers for this host once the registry knows it.
// Bind the manager to the runner that runs its Plans before any other call.
func New(cfg Config, ports steps.Ports, journal Journal, host func(context.Context) (steps.Host, error), log *slog.Logger) *Manager {
	m := &Manager{
		cfg: cfg, ports: ports, journal: journal, host: host, log: log, watch: newWatchers(),
		admission: request.Admission{Journal: journal, Log: log, Now: ports.Now},
	}
	status := func(ctx context.Context, opID string) (op.Status, error) { return m.runner.Status(ctx, opID) }
	m.env = steps.NewEnv(ports, steps.NewHistory(journal, status), host, m.watch.notify, log)
	return m
}

// Bind gives the manager its runner.
func (m *Manager) Bind(r *op.Runner) { m.runner, m.admission.Runner = r, r }

func (m *Manager) overlayPath(migrationID string) string {
	return filepath.Join(m.cfg.OverlayDir, migrationID+".qcow2")
}

// Plans returns the plans of all op kinds of a migration, for the runner.
func (m *Manager) Plans() []op.Plan { return m.env.Plans() }

// Probe returns once nothing is being decided about a migration. Decisions are made one
// after the other, and ask libvirt, the registry and the storage: one that hangs is in the way
// of all.
func (m *Manager) Probe(context.Context) error {
	m.admission.Lock()
	defer m.admission.Unlock()
	return nil
}

// Journal is where migrations survive: a migration is the group of its ops,
// and everything about it is computed from them.
type Journal interface {
	op.Journal
	// Ops returns the ops of one kind, oldest first; all of them, or those that
	// are not finished.
	Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error)
}
