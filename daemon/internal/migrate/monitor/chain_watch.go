// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/changes"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// ChainProblems returns the problems that WatchChains has found, ordered by instance name.
func (m *Monitor) ChainProblems() []ChainProblem {
	m.chains.mu.Lock()
	defer m.chains.mu.Unlock()
	var out []ChainProblem
	for _, p := range m.chains.found {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b ChainProblem) int {
		return cmp.Or(cmp.Compare(a.InstanceName, b.InstanceName), cmp.Compare(a.MigrationID, b.MigrationID))
	})
	return out
}

const (
	// ChainWatchEvery is the interval of complete looks.
	ChainWatchEvery = 30 * time.Second
	// GlanceEvery is the interval of looks at the top images: libvirt has no event for a snapshot.
	GlanceEvery = time.Second
)

// WatchChains checks, until ctx ends, the definitions and processes of instances with moving
// volumes: at once after a change of a definition, within a second after another program's
// snapshot, and at intervals. It guards an instance that would start without its newest writes. It
// does not look while an op works on the instance, but directly after the op.
func (m *Monitor) WatchChains(ctx context.Context) error {
	events := m.hv.Events(ctx)
	tick, glance := time.NewTicker(ChainWatchEvery), time.NewTicker(GlanceEvery)
	defer tick.Stop()
	defer glance.Stop()
	ended := changes.NewFollower("")
	m.opEnds.Subscribe(ctx, ended)
	m.lookAtChains(ctx, func(*history.Migration) bool { return true }, true)
	for {
		of := func(*history.Migration) bool { return true }
		select {
		case <-ctx.Done():
			return nil
		case <-glance.C:
			m.glanceAtChains(ctx)
			continue
		case <-tick.C:
		case <-ended.Wake:
			keys := m.opEnds.Take(ended)
			of = func(h *history.Migration) bool { return slices.Contains(keys, h.Spec.Key()) }
		case e, open := <-events:
			switch {
			case !open:
				return nil
			case e.Kind == hv.EventLifecycle:
				of = func(h *history.Migration) bool { return h.Spec.InstanceID == e.DomainID }
			case e.Kind != hv.EventConnected:
				continue
			}
		}
		m.lookAtChains(ctx, of, false)
	}
}

// lookAtChains looks at each open migration if matches returns true. If ended is true, it also
// looks at ended migrations, since a daemon that died may have left a guard.
func (m *Monitor) lookAtChains(ctx context.Context, matches func(*history.Migration) bool, ended bool) {
	ids, err := m.history.IDs(ctx)
	for _, id := range ids {
		if m.history.HasEnded(id) && !ended && m.chains.of(id) == nil {
			continue
		}
		var h *history.Migration
		if h, err = m.history.Load(ctx, id); err != nil {
			break
		}
		if overlay.Watched(&h.Spec) && matches(h) {
			m.keepGlance(h)
			m.lookAtChain(ctx, h)
		}
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("cannot look at the chains of what is migrated", "err", err)
	}
}

func (m *Monitor) glanceAtChains(ctx context.Context) {
	for id, disk := range m.glances {
		top, err := m.hv.TopImage(ctx, disk.instanceID, disk.target)
		if err != nil || top == disk.top && m.chains.of(id) == nil {
			continue // unknown; the next glance looks again
		}
		if h, err := m.history.Load(ctx, id); err == nil {
			m.keepGlance(h)
			m.lookAtChain(ctx, h)
		}
	}
}

func (m *Monitor) keepGlance(h *history.Migration) {
	s := &h.Spec
	if state, _ := h.State(); state.Final() {
		delete(m.glances, s.MigrationID)
		return
	}
	m.glances[s.MigrationID] = chainGlance{s.InstanceID, s.Target, s.TopBefore()}
}

func (m *Monitor) lookAtChain(ctx context.Context, h *history.Migration) {
	look := func() {
		if problem, known := m.chainProblem(ctx, h); known {
			m.noteChain(&h.Spec, problem)
		}
	}
	if o := h.Running(); o != nil {
		switch {
		case o.State == op.StateNeedsOperator:
			look() // the op keeps its locks and does nothing
		case o.LeavesChain():
			m.lookBesideCopy(ctx, h, o.Op.ID)
		}
		return
	}
	m.runner.TryLock([]string{h.Spec.Key()}, look)
}

// lookBesideCopy looks at the chain during a long copy, which does not change the chain. The
// result counts only if the copy still runs afterwards: then no other op has run meanwhile.
func (m *Monitor) lookBesideCopy(ctx context.Context, h *history.Migration, copyID string) {
	problem, known := m.chainProblem(ctx, h)
	if !known {
		return
	}
	now, err := m.history.Load(ctx, h.Spec.MigrationID)
	if err != nil {
		return
	}
	if o := now.Running(); o != nil && o.Op.ID == copyID {
		m.noteChain(&h.Spec, problem)
	}
}

// noteChain stores the problem of a migration's chain; nil means none. It guards the instance if
// the problem requires a guard, and otherwise clears the guard.
func (m *Monitor) noteChain(s *move.Spec, problem *api.ChainProblem) {
	guards := m.guards
	if problem == nil || !problem.Guarded {
		has, err := guards.Has(s.InstanceID, overlay.ChainOwner(s))
		if err == nil && has {
			err = guards.Clear(s.InstanceID, overlay.ChainOwner(s))
		}
		if err != nil {
			m.log.Warn("cannot clear a guard", "instance", s.InstanceName, "err", err)
			return // the problem stays, so this is tried again
		}
	} else if err := guards.Set(s.InstanceID, overlay.ChainOwner(s), problem.Message); err != nil {
		m.log.Error("cannot guard an instance", "instance", s.InstanceName, "err", err)
	}
	if !m.chains.put(s.MigrationID, s.InstanceName, problem) {
		return
	}
	if problem != nil {
		m.log.Error("somebody else has changed the disk of a migration", "instance", s.InstanceName, "migration", s.MigrationID, "guarded", problem.Guarded, "why", problem.Message)
	}
	m.watch.Notify(s.MigrationID)
}

// MayStart refuses the start of an instance if its chain lacks its newest writes. It looks at the
// chain itself, since WatchChains may not have seen the problem yet.
func (m *Monitor) MayStart(ctx context.Context, instanceID string) error {
	err := m.history.EachOpen(ctx, func(h *history.Migration) error {
		if h.Spec.InstanceID != instanceID || !overlay.Watched(&h.Spec) {
			return nil
		}
		problem, known := m.chainProblem(ctx, h)
		if known && problem != nil && problem.Guarded {
			return api.Errorf(api.CodeChainChanged, "%s", problem.Message)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.which.CheckRecorded(ctx, instanceID)
}

// chainProblem returns the problem of a migration's chain, or nil. known is false if the chain
// cannot be read now.
func (m *Monitor) chainProblem(ctx context.Context, h *history.Migration) (problem *api.ChainProblem, known bool) {
	parked := h.Running() != nil && h.Running().State == op.StateNeedsOperator
	if parked || h.OnOverlay() {
		problem, known = m.overlay.ChainProblem(ctx, &h.Spec, h.OnOverlay() && !h.InPivot(move.GoalComplete), h.InPivot(move.GoalCancel), parked && h.MayHaveRunAtEnd())
		if problem != nil || !known {
			return problem, known
		}
	}
	if state, _ := h.State(); state.Final() {
		return nil, true
	}
	return m.overlay.UnderSnapshot(ctx, &h.Spec)
}

// ProblemOf returns the problem of a migration's chain that WatchChains has found, or nil.
func (m *Monitor) ProblemOf(migrationID string) *api.ChainProblem { return m.chains.of(migrationID) }
