// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// Config has the operator's settings for migrations on this host.
type Config struct {
	// OverlayDir is the directory of this host's overlays, on a persistent filesystem.
	OverlayDir string
	// OverlaysShared says that OverlayDir is on storage that other hosts see.
	OverlaysShared bool
	// Rules say where a destination given by path may be.
	Rules location.Rules
	// OverlayMinFreeBytes must be free in OverlayDir before a migration starts; less is
	// enough if the overlay of the volume cannot grow as large.
	OverlayMinFreeBytes int64
	// ThrottleBelowBytes is how much has to be free for overlays, or the writes of the guests
	// to them are slowed down; 0 never slows one. They are slowed so that what is free lasts for
	// ThrottleFor.
	ThrottleBelowBytes int64
	ThrottleFor        time.Duration
	// SharedPools are pools in which other hosts see the same bytes, in addition to pools
	// whose type says so.
	SharedPools []string
}

// Manager starts migrations, brings them to their end and reports on them. It is safe for
// concurrent use.
type Manager struct {
	cfg     Config
	ports   steps.Ports
	env     *steps.Env
	journal Journal
	host    func(context.Context) (steps.Host, error)
	log     *slog.Logger
	runner  *op.Runner
	watch   *watchers
	opEnds  *watchers // of ops of all managers, by the keys that become free

	// ended has the ids of migrations that were seen to be over. They stay so, and their
	// history is not read again to list the open ones.
	ended sync.Map

	// groups has the migration of each op, so that followers are told without a look at
	// the op.
	groups sync.Map

	retries retries
	cancels cancels
	endsDue chan struct{} // of recordEndsSoon

	chains  chainProblems
	glances chainGlances // of WatchChains alone
	ioStops ioStops
	slowed  slowedGuests
	stops   stops
	sources writtenSources

	// admission is locked from the look at a migration to the submission of its next op.
	// Migrations last, so that no request waits behind one; the deletion of a source does not.
	admission request.Admission
}

func (m *Manager) overlayPath(migrationID string) string {
	return filepath.Join(m.cfg.OverlayDir, migrationID+".qcow2")
}

// Plans returns the plans of all op kinds of a migration.
func (m *Manager) Plans() []op.Plan { return m.env.Plans() }

// Probe returns once no decision about a migration is being made. Decisions are made one
// after the other, and ask libvirt, the registry and the storage: a decision that hangs
// blocks all others.
func (m *Manager) Probe(context.Context) error {
	m.admission.Lock()
	defer m.admission.Unlock()
	return nil
}

// Journal is where migrations survive: a migration is the group of its ops, and everything
// about it is computed from them.
type Journal interface {
	op.Journal
	// Ops returns the ops of one kind, oldest first; all of them, or those that
	// are not finished.
	Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error)
}

// changed is called by the runner: something was recorded of this op.
func (m *Manager) changed(opID string) {
	known, _ := m.groups.Load(opID)
	if id, ok := known.(string); ok {
		m.watch.notify(id)
		return
	}
	// From memory, as the op is not retired yet: no change may be missed.
	st, err := m.runner.Status(context.Background(), opID)
	if err != nil {
		m.log.Warn("cannot look at an op that changed", "op", opID, "err", err)
		return
	}
	if steps.GoalOf(st.Op.Kind) != "" {
		m.groups.Store(opID, st.Op.Group)
		m.watch.notify(st.Op.Group)
	}
}

// finished is called by the runner: this op has ended, and its keys are free.
func (m *Manager) finished(st op.Status) {
	for _, key := range st.Op.Keys {
		m.opEnds.notify(key)
	}
}
