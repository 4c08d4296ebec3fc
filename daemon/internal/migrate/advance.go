// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Run brings migrations from one op to the next until ctx ends: what a `volume
// migrate` has still to do, and what the world overtook. It begins with what a
// daemon that died may have left, and calls caughtUp once when that was looked
// at. Resume the runner first.
func (m *Manager) Run(ctx context.Context, caughtUp func()) error {
	changes := m.watch.all(ctx)
	open, err := m.List(ctx, false)
	if err != nil {
		return err
	}
	for i := range open {
		m.advance(ctx, open[i].ID)
	}
	caughtUp()
	for id := range changes {
		m.advance(ctx, id)
	}
	return nil
}

// Changed is the runner's Config.OnChange: something was recorded of this op.
func (m *Manager) Changed(opID string) {
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

// atWork says whether an op of the migration is not at its end yet, from memory: as
// long as it is, and the guest may be paused by it, the journal is not read.
func (m *Manager) atWork(id string) bool {
	return slices.ContainsFunc(m.runner.Active(), func(st op.Status) bool {
		return st.Op.Group == id && !st.State.Final()
	})
}

// replanDelay, times the number of tries, keeps an instance that is restarted in
// a loop from being chased.
const replanDelay = 100 * time.Millisecond

// advance submits the op that a migration needs next, if any. What cannot be
// done now is tried again, less and less often.
func (m *Manager) advance(ctx context.Context, id string) {
	m.admit.Lock()
	defer m.admit.Unlock()
	if m.atWork(id) {
		return
	}
	h, err := m.loadHistory(ctx, id)
	if err != nil {
		m.retryLater(id, err)
		return
	}
	todo, request, ok := h.next()
	if !ok {
		todo, request, ok = m.endedMeanwhile(ctx, h)
	}
	if !ok {
		return
	}
	last := h.ops[len(h.ops)-1]
	delay := time.Duration(h.replans()) * replanDelay
	// More than the delay is a clock that was set back, which decides nothing.
	if wait := last.FinishedAt.Add(delay).Sub(m.ports.Now()); wait > 0 && wait <= delay {
		time.AfterFunc(wait, func() { m.watch.notify(id) })
		return
	}
	kind, err := m.nextKind(ctx, h, todo)
	if err == nil && todo == steps.GoalComplete && last.goal == steps.GoalCopy {
		err = m.env.CheckNotSaved(ctx, &h.spec)
	}
	if err == nil {
		err = m.submit(ctx, kind, followUpID(id, len(h.ops)), steps.Input{Spec: h.spec, RequestID: request, Why: h.givenUp(todo)}, todo)
	}
	if err != nil {
		m.retryLater(id, err)
		return
	}
	m.retries.forget(id)
}

// endedMeanwhile is what is to be done for a migration that waits for somebody's
// call, if the registry has ended it while this host was fenced: a cancel, which
// finds that out.
func (m *Manager) endedMeanwhile(ctx context.Context, h *history) (todo steps.Goal, request string, ok bool) {
	s := &h.spec
	if state, _ := h.state(); !m.env.Behind(s) || state.Final() || state == api.MigrationNeedsOperator || h.running() != nil {
		return "", "", false
	}
	ctx, cancel := context.WithTimeout(ctx, grantBound)
	defer cancel()
	row, err := m.ports.Registry.Migration(ctx, s.MigrationID)
	if err != nil {
		m.retryLater(s.MigrationID, err)
		return "", "", false
	}
	return steps.GoalCancel, h.ops[len(h.ops)-1].requestID, row.State.Final()
}

// Rejoined has the manager look at every open migration: this host was fenced, and
// the registry may have ended some meanwhile.
func (m *Manager) Rejoined(ctx context.Context) error {
	open, err := m.List(ctx, false)
	for i := range open {
		m.watch.notify(open[i].ID)
	}
	return err
}

// Wake tells the ops that wait for libvirt or for the registry that it is back.
func (m *Manager) Wake(hypervisor, registry bool) {
	if hypervisor {
		m.runner.Wake(request.WaitHypervisor)
	}
	if registry {
		m.runner.Wake(request.WaitRegistry)
	}
	m.retries.expedite()
}

// Request returns where the request stands that began with this op. An op that
// is none of a migration stands for itself.
func (m *Manager) Request(ctx context.Context, opID string) (api.Op, error) {
	st, err := m.runner.Status(ctx, opID)
	if err != nil {
		return api.Op{}, api.Errorf(api.CodeNotFound, "no op %s", opID)
	}
	if steps.GoalOf(st.Op.Kind) == "" {
		return describe(&st, st.State, steps.APIError(st.Failure)), nil
	}
	h, err := m.loadHistory(ctx, st.Op.Group)
	if err != nil {
		return api.Op{}, err
	}
	// By the history alone: the op may have gone on since the look before it.
	state, failure, last := h.requestState(opID)
	if last == nil { // an op that the manager submitted by itself
		last = h.op(opID)
		state, failure = last.State, steps.APIError(last.Failure)
	}
	out := describe(&last.Status, state, failure)
	out.ID, out.Kind, out.CreatedAt, out.MigrationID = opID, st.Op.Kind, st.Op.CreatedAt, st.Op.Group
	return out, nil
}

// describe is an op as its caller is told of it, with how his request stands: all by
// one look at it.
func describe(st *op.Status, state op.State, failure *api.Error) api.Op {
	out := api.Op{
		ID: st.Op.ID, Kind: st.Op.Kind, CreatedAt: st.Op.CreatedAt,
		State: string(state), Step: st.Step, Remark: remark(st), Error: failure, Location: madeLocation(st),
		WaitingFor: st.Waiting, Behind: st.Behind, Subject: subjectOf(st.Op.Input),
	}
	if st.Waiting != "" {
		since := st.WaitingSince.UTC()
		out.WaitingSince = &since
	}
	if state.Final() {
		finished := st.FinishedAt.UTC()
		out.FinishedAt = &finished
	}
	return out
}

// remark is what a step of an op has to say to whoever asked: the "remark" of its
// output.
func remark(st *op.Status) string {
	for _, data := range st.Outputs {
		var out struct {
			Remark string `json:"remark"`
		}
		if json.Unmarshal(data, &out) == nil && out.Remark != "" {
			return out.Remark
		}
	}
	return ""
}

// Watch yields the migration now and after every change, until it is over or
// ctx ends. Seq grows with the journal; progress between two records has the Seq
// of the first.
func (m *Manager) Watch(ctx context.Context, id string, yield func(api.Event) bool) error {
	for range m.watch.changes(ctx, id) {
		h, err := m.loadHistory(ctx, id)
		if err != nil {
			return err
		}
		mig := m.render(h)
		seq, err := m.sequence(ctx, h)
		if err != nil {
			return err
		}
		if !yield(api.Event{Seq: seq, At: m.ports.Now().UTC(), What: "migration", Object: id, To: string(mig.State), Migration: &mig}) {
			return nil
		}
		if mig.State.Final() {
			return nil
		}
	}
	return nil
}

// sequence counts the records of a migration's ops.
func (m *Manager) sequence(ctx context.Context, h *history) (int64, error) {
	var n int64
	for i := range h.ops {
		records, err := m.journal.Records(ctx, h.ops[i].Op.ID)
		if err != nil {
			return 0, steps.JournalError(err)
		}
		n += int64(len(records))
	}
	return n, nil
}

func sortByAge(ops []op.Op) {
	slices.SortStableFunc(ops, func(a, b op.Op) int { return a.CreatedAt.Compare(b.CreatedAt) })
}

// Epoch tells the manager in which epoch this host is by the registry's word: call
// it with what each report is answered with, be that a host or the detail "epoch"
// of stale_epoch. A newer one than that of a migration stops what touches its
// images, until the registry has said that it is still this host's.
func (m *Manager) Epoch(epoch int64) { m.env.RaiseEpoch(epoch) }
