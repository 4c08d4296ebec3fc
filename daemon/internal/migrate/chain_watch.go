// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// ChainProblems returns the problems that the watch has found, ordered by the name of the instance.
func (m *Manager) ChainProblems() []ChainProblem {
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
	// chainWatchEvery is the interval of complete looks without an event.
	chainWatchEvery = 30 * time.Second
	// glanceEvery is the interval of looks at the top images of disks: libvirt has no event for a
	// snapshot.
	glanceEvery = time.Second
)

// WatchChains checks, until ctx ends, the definitions and processes of instances with moving
// volumes: at once after a change of a definition, within a second after a program put an image
// over a disk, and at intervals. It guards an instance that would start without its newest writes.
// It does not look while an op works on the instance, but at once after the op, which may have
// corrected the problem.
func (m *Manager) WatchChains(ctx context.Context) error {
	events := m.ports.HV.Events(ctx)
	tick, glance := time.NewTicker(chainWatchEvery), time.NewTicker(glanceEvery)
	defer tick.Stop()
	defer glance.Stop()
	ended := newFollower("")
	m.opEnds.subscribe(ctx, ended)
	m.lookAtChains(ctx, func(*history) bool { return true }, true)
	for {
		of := func(*history) bool { return true }
		select {
		case <-ctx.Done():
			return nil
		case <-glance.C:
			m.glanceAtChains(ctx)
			continue
		case <-tick.C:
		case <-ended.wake:
			keys := m.opEnds.take(ended)
			of = func(h *history) bool { return slices.Contains(keys, h.spec.Key()) }
		case e, open := <-events:
			switch {
			case !open:
				return nil
			case e.Kind == hv.EventLifecycle:
				of = func(h *history) bool { return h.spec.InstanceID == e.DomainID }
			case e.Kind != hv.EventConnected:
				continue
			}
		}
		m.lookAtChains(ctx, of, false)
	}
}

// lookAtChains looks at the open migrations that match of; with over also at ended ones, since an
// older daemon may have left a guard.
func (m *Manager) lookAtChains(ctx context.Context, of func(*history) bool, over bool) {
	ids, err := m.ids(ctx)
	for _, id := range ids {
		if _, ended := m.ended.Load(id); ended && !over && m.chains.of(id) == nil {
			continue
		}
		var h *history
		if h, err = m.loadHistory(ctx, id); err != nil {
			break
		}
		if overlay.Watched(&h.spec) && of(h) {
			m.keepGlance(h)
			m.lookAtChain(ctx, h)
		}
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("cannot look at the chains of what is migrated", "err", err)
	}
}

// glanceAtChains looks at the migrations with an unexpected top image, and at those with a problem,
// which may have ended.
func (m *Manager) glanceAtChains(ctx context.Context) {
	for id, disk := range m.glances {
		top, err := m.ports.HV.TopImage(ctx, disk.instanceID, disk.target)
		if err != nil || top == disk.top && m.chains.of(id) == nil {
			continue // unknown now; the next glance looks again
		}
		if h, err := m.loadHistory(ctx, id); err == nil {
			m.keepGlance(h)
			m.lookAtChain(ctx, h)
		}
	}
}

func (m *Manager) keepGlance(h *history) {
	s := &h.spec
	if state, _ := h.state(); state.Final() {
		delete(m.glances, s.MigrationID)
		return
	}
	m.glances[s.MigrationID] = chainGlance{s.InstanceID, s.Target, s.TopBefore()}
}

// lookAtChain looks at the instance of one migration, unless an op works on it.
func (m *Manager) lookAtChain(ctx context.Context, h *history) {
	look := func() {
		if problem, known := m.chainProblem(ctx, h); known {
			m.noteChain(&h.spec, problem)
		}
	}
	if o := h.running(); o != nil {
		switch {
		case o.State == op.StateNeedsOperator:
			look() // the op keeps its locks and does nothing
		case o.leavesChain():
			m.lookBesideCopy(ctx, h, o.Op.ID)
		}
		return
	}
	m.runner.TryLock([]string{h.spec.Key()}, look)
}

// lookBesideCopy is lookAtChain during a copy, which may take hours and does not change the chain.
// The result counts if the copy still runs afterwards: then no other op was at work.
func (m *Manager) lookBesideCopy(ctx context.Context, h *history, copyID string) {
	problem, known := m.chainProblem(ctx, h)
	if !known {
		return
	}
	now, err := m.loadHistory(ctx, h.spec.MigrationID)
	if err != nil {
		return // the next look shows it
	}
	if o := now.running(); o != nil && o.Op.ID == copyID {
		m.noteChain(&h.spec, problem)
	}
}

// noteChain stores the problem of a migration, nil for none. It guards the instance if the problem
// requires that, and otherwise clears the guard.
func (m *Manager) noteChain(s *move.Spec, problem *api.ChainProblem) {
	guards := m.ports.Guards
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
	m.watch.notify(s.MigrationID)
}

// MayStart refuses the start of an instance without the chain that has its newest writes. It looks
// itself, because the watch may not have seen the problem yet.
func (m *Manager) MayStart(ctx context.Context, instanceID string) error {
	err := m.eachOpen(ctx, func(h *history) error {
		if h.spec.InstanceID != instanceID || !overlay.Watched(&h.spec) {
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
	return m.CheckRecorded(ctx, instanceID)
}

// chainProblem returns the problem of the chain of a migration's instance, nil if there is none.
// known is false if that is unknown now.
func (m *Manager) chainProblem(ctx context.Context, h *history) (problem *api.ChainProblem, known bool) {
	parked := h.running() != nil && h.running().State == op.StateNeedsOperator
	if parked || h.onOverlay() {
		problem, known = m.env.Overlay.ChainProblem(ctx, &h.spec, h.onOverlay() && !h.inPivot(move.GoalComplete), h.inPivot(move.GoalCancel), parked && h.mayHaveRunAtEnd())
		if problem != nil || !known {
			return problem, known
		}
	}
	if state, _ := h.state(); state.Final() {
		return nil, true
	}
	return m.env.Overlay.UnderSnapshot(ctx, &h.spec)
}
