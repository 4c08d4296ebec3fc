// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Run submits the next ops of migrations until ctx ends: the next op of a `volume migrate`, and
// again an op that a change of the host's state has ended (move.Overtaken). Run begins with the
// migrations of an earlier daemon, and calls caughtUp after it has looked at all of them. It also
// continues an earlier daemon's deletions of sources, and reports the ends of moves to a registry
// that lacks them (recordEnds). Resume the runner first.
func (m *Manager) Run(ctx context.Context, caughtUp func()) error {
	changes := m.watch.All(ctx)
	m.Released.ContinueDeletions(ctx)
	open, err := m.List(ctx, false)
	if err != nil {
		return err
	}
	for i := range open {
		m.advance(ctx, open[i].ID)
		m.auditStop(ctx, open[i].ID, true)
	}
	caughtUp()
	var ends sync.WaitGroup
	defer ends.Wait()
	ends.Go(func() { m.keepEndsRecorded(ctx) })
	for id := range changes {
		m.advance(ctx, id)
		m.auditStop(ctx, id, false)
	}
	return nil
}

// atWork reports, from memory, whether the migration has an unfinished op: the journal must not be
// read while the op has its guest paused.
func (m *Manager) atWork(id string) bool {
	return slices.ContainsFunc(m.runner.Active(), func(st op.Status) bool {
		return st.Op.Group == id && !st.State.Final()
	})
}

// advance submits the next op of a migration, if any, and retries at growing intervals.
func (m *Manager) advance(ctx context.Context, id string) {
	m.admission.Lock()
	defer m.admission.Unlock()
	if m.atWork(id) {
		return
	}
	h, err := m.History.Load(ctx, id)
	if err != nil {
		m.retryLater(id, err)
		return
	}
	todo, requestID, ok := h.Next()
	if !ok {
		todo, requestID, ok = m.endedMeanwhile(ctx, h)
	}
	if !ok {
		return
	}
	last := h.Ops[len(h.Ops)-1]
	delay := time.Duration(h.Replans()) * replanDelay
	// A longer wait means that the clock was set back.
	if wait := last.FinishedAt.Add(delay).Sub(m.ports.Now()); wait > 0 && wait <= delay {
		time.AfterFunc(wait, func() { m.watch.Notify(id) })
		return
	}
	planned, err := m.planOp(ctx, h, todo)
	if err == nil && todo == move.GoalComplete && last.Goal == move.GoalCopy {
		err = m.env.Look.CheckNotSaved(ctx, &h.Spec)
	}
	if err == nil {
		in := &history.OpInput{Input: move.Input{Spec: h.Spec, RequestID: requestID, Why: h.GivenUp(todo)}, Planned: planned}
		_, err = m.admission.Begin(ctx, followUpID(id, len(h.Ops)), planned.Kind, in)
	}
	if err != nil {
		m.retryLater(id, err)
		return
	}
	m.retries.forget(id)
}

// endedMeanwhile returns a cancel for a migration that waits for a call, if the registry has ended
// the migration while this host was fenced.
func (m *Manager) endedMeanwhile(ctx context.Context, h *history.Migration) (todo move.Goal, requestID string, ok bool) {
	s := &h.Spec
	if state, _ := h.State(); !m.env.Move.Behind(s) || state.Final() || state == api.MigrationNeedsOperator || h.Running() != nil {
		return "", "", false
	}
	ctx, cancel := context.WithTimeout(ctx, grantBound)
	defer cancel()
	row, err := m.ports.Registry.Migration(ctx, s.MigrationID)
	if api.CodeOf(err) == api.CodeNotFound { // after a restore from an older backup
		row.State, err = api.MigrationCancelled, m.recordEnds(ctx)
	}
	if err != nil {
		m.retryLater(s.MigrationID, err)
		return "", "", false
	}
	return move.GoalCancel, h.Ops[len(h.Ops)-1].RequestID, row.State.Final()
}

// Rejoined looks at all open migrations after a fence of this host, because the registry may have
// ended some. The daemon reports the ends of earlier moves to a restored registry soon after:
// before Rejoined has returned, the registry accepts no calls of this host.
func (m *Manager) Rejoined(ctx context.Context) error {
	m.recordEndsSoon()
	open, err := m.List(ctx, false)
	for i := range open {
		m.watch.Notify(open[i].ID)
	}
	return err
}

// Wake continues the ops that wait for libvirt or the registry, and soon makes the delayed retries
// of migrations. hypervisor means that libvirt is available again, registry that the registry is.
func (m *Manager) Wake(hypervisor, registry bool) {
	if hypervisor {
		m.runner.Wake(request.WaitHypervisor)
	}
	if registry {
		m.runner.Wake(request.WaitRegistry)
		m.recordEndsSoon()
	}
	m.retries.expedite()
}

// Epoch sets the epoch of this host. Call it with the epoch in each answer to a report, and in the
// detail "epoch" of a stale_epoch error. After a newer epoch no op touches images until the
// registry has confirmed that the migration still belongs to this host.
func (m *Manager) Epoch(epoch int64) { m.env.Move.RaiseEpoch(epoch) }

// retryLater calls advance again after growing delays. It logs only the first failure as a
// warning: a fence may last for hours.
func (m *Manager) retryLater(id string, why error) {
	n := m.retries.schedule(id, why, func() { m.watch.Notify(id) })
	level := slog.LevelDebug
	if n == 1 {
		level = slog.LevelWarn
	}
	m.log.Log(context.Background(), level, "cannot go on with a migration yet", "migration", id, "try", n, "err", why)
}
