// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// Config has the operator's settings for migrations on this host.
type Config struct {
	// OverlayDir is the directory of this host's overlays, on a persistent filesystem.
	OverlayDir string
	// OverlaysShared: OverlayDir is on storage that other hosts see.
	OverlaysShared bool
	// Rules limit the paths of destinations.
	Rules location.Rules
	// OverlayMinFreeBytes must be free in OverlayDir before a migration starts, or less if the
	// overlay cannot grow as large.
	OverlayMinFreeBytes int64
	// While less than ThrottleBelowBytes is free for overlays, the guests' writes to them are
	// limited so that the free space lasts for ThrottleFor; 0 is no limit.
	ThrottleBelowBytes int64
	ThrottleFor        time.Duration
	// SharedPools are pools with the same bytes on other hosts, in addition to pools of a shared
	// type.
	SharedPools []string
}

// Manager starts migrations, brings them to their end and reports on them. It is safe for
// concurrent use.
type Manager struct {
	cfg     Config
	ports   move.Ports
	env     *plans.Env
	journal Journal
	host    func(context.Context) (move.Host, error)
	log     *slog.Logger
	runner  *op.Runner
	watch   *watchers
	opEnds  *watchers // of ops of all managers, by the keys that became free

	// ended has the ids of migrations that have ended, so that their history is not read again to
	// list the open ones.
	ended sync.Map

	// groups has the migration of each op, so that followers are notified without a look at the op.
	groups sync.Map

	retries retries
	cancels cancels
	endsDue chan struct{} // for recordEndsSoon

	chains  chainProblems
	glances chainGlances // only for WatchChains
	ioStops ioStops
	slowed  slowedGuests
	stops   stops
	sources writtenSources

	// admission is locked from the look at a migration to the submission of its next op. Migrations
	// take long, so a request does not wait for one; but it waits for the deletion of a source.
	admission request.Admission
}

func (m *Manager) overlayPath(migrationID string) string {
	return filepath.Join(m.cfg.OverlayDir, migrationID+".qcow2")
}

// Plans returns the plans of all op kinds of a migration.
func (m *Manager) Plans() []op.Plan { return m.env.Plans() }

// Probe returns once no decision about a migration is being made. Decisions are made one after the
// other, and ask libvirt, the registry and the storage: a decision that hangs blocks all others.
func (m *Manager) Probe(context.Context) error {
	m.admission.Lock()
	defer m.admission.Unlock()
	return nil
}

// Journal stores migrations: a migration is the group of its ops, and its state is computed from
// them.
type Journal interface {
	op.Journal
	// Ops returns all ops of a kind, or only the unfinished ones, oldest first.
	Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error)
}

// changed is called by the runner after each record of an op.
func (m *Manager) changed(opID string) {
	known, _ := m.groups.Load(opID)
	if id, ok := known.(string); ok {
		m.watch.notify(id)
		return
	}
	// This is from memory, as the op is not retired yet: no change may be missed.
	st, err := m.runner.Status(context.Background(), opID)
	if err != nil {
		m.log.Warn("cannot look at an op that changed", "op", opID, "err", err)
		return
	}
	if move.GoalOf(st.Op.Kind) != "" {
		m.groups.Store(opID, st.Op.Group)
		m.watch.notify(st.Op.Group)
	}
}

// finished is called by the runner when an op has ended and its keys are free.
func (m *Manager) finished(st op.Status) {
	for _, key := range st.Op.Keys {
		m.opEnds.notify(key)
	}
}
