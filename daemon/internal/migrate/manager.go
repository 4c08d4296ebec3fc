// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"sync"

	"github.com/volferry/volferry/daemon/internal/migrate/changes"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/monitor"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/parts"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/migrate/preflight"
	"github.com/volferry/volferry/daemon/internal/migrate/released"
	"github.com/volferry/volferry/daemon/internal/migrate/which"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// Manager starts migrations, brings them to their end and reports on them. It is safe for
// concurrent use.
type Manager struct {
	History   *history.Reader
	Which     *which.Finder
	Released  *released.Sources
	Preflight *preflight.Checks
	Monitor   *monitor.Monitor
	Parts     *parts.Parts

	cfg    *move.Config
	ports  move.Ports
	env    *plans.Env
	log    *slog.Logger
	runner *op.Runner
	watch  *changes.Feed
	opEnds *changes.Feed // ops of all managers, by the keys that became free

	// groups has the migration of each op, so that followers are notified without a look at the
	// op.
	groups sync.Map

	retries retries
	cancels cancels
	endsDue chan struct{} // wakes keepEndsRecorded
	stops   stops

	// admission is locked from the look at a migration until its next op is submitted. A request
	// does not wait for a migration to end, but waits for the deletion of a source.
	admission request.Admission
}

// Plans returns the plans of a migration's op kinds.
func (m *Manager) Plans() []op.Plan { return m.env.Plans() }

// Probe returns when no decision about a migration is being made. Decisions are made one after the
// other, and ask libvirt, the registry and the storage, so a hanging decision blocks all others.
func (m *Manager) Probe(context.Context) error {
	m.admission.Lock()
	defer m.admission.Unlock()
	return nil
}

func (m *Manager) changed(opID string) {
	known, _ := m.groups.Load(opID)
	if id, ok := known.(string); ok {
		m.watch.Notify(id)
		return
	}
	// From memory, as the op is not retired yet: no change may be missed.
	st, err := m.runner.Status(context.Background(), opID)
	if err != nil {
		m.log.Warn("cannot look at an op that changed", "op", opID, "err", err)
		return
	}
	if move.GoalOf(st.Op.Kind) != "" {
		m.groups.Store(opID, st.Op.Group)
		m.watch.Notify(st.Op.Group)
	}
}

func (m *Manager) finished(st op.Status) {
	if move.GoalOf(st.Op.Kind) != "" {
		m.env.Move.ForgetProgress(st.Op.Group)
	}
	for _, key := range st.Op.Keys {
		m.opEnds.Notify(key)
	}
}
