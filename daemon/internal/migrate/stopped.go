// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stop is a standstill: nothing more is done for the migration until somebody asks for it, or
// changes what is in its way.
type stop struct {
	op      string // whose failure it is
	at      time.Time
	failure *api.Error
}

// stopped returns the standstill of a migration, nil if the migration is over, goes on by
// itself, or waits for the next call of whoever makes it step by step.
func (m *Manager) stopped(h *history) *stop {
	at := h.stopped()
	switch {
	case at == nil:
		return m.heldUp(h)
	case at.failure == nil || at.failure.Message != errCancelled.Message:
		return at
	case m.cancels.has(h.spec.MigrationID):
		return nil // whoever asked for the cancel begins it now
	}
	at.failure = errCancelNotBegun
	return at
}

// errCancelNotBegun is why a migration stands whose op was stopped for a cancel that did not
// begin.
var errCancelNotBegun = api.Errorf(api.CodeStateForbidden, "a cancel has stopped what ran, and has not begun itself: volferryd ended meanwhile, or could not begin it; nothing was taken back yet")

// heldUpAfter is for how long the next op of a migration may be put off before that is taken for
// a standstill: a libvirt or a registry that is restarted is none.
const heldUpAfter = 10 * time.Minute

// heldUp returns the standstill of a migration that would go on by itself, and cannot: its guest
// is saved, for example. It is tried again all the time.
func (m *Manager) heldUp(h *history) *stop {
	why := m.retries.why(h.spec.MigrationID)
	if _, _, more := h.next(); !more || why == nil {
		return nil
	}
	last := &h.ops[len(h.ops)-1]
	if m.ports.Now().Sub(last.FinishedAt) < heldUpAfter {
		return nil
	}
	return &stop{op: last.Op.ID, at: last.FinishedAt, failure: api.AsError(steps.HVRefusal(request.Refused(why)))}
}

// stopped is Manager.stopped as far as the journal says. What was stopped for a cancel stands.
func (h *history) stopped() *stop {
	state, failure := h.state()
	if state.Final() {
		return nil
	}
	if o := h.running(); o != nil {
		if o.State != op.StateNeedsOperator {
			return nil
		}
		return &stop{op: o.Op.ID, at: o.ParkedAt, failure: failure}
	}
	if _, _, more := h.next(); more || failure == nil || h.spec.LedByRegistry() {
		return nil // the registry leads it
	}
	last := &h.ops[len(h.ops)-1]
	return &stop{op: last.Op.ID, at: last.FinishedAt, failure: failure}
}

// auditStop adds to the audit trail that the migration has stopped, once for each standstill.
// What had stopped before the daemon began is there already: silent only remembers it.
func (m *Manager) auditStop(ctx context.Context, id string, silent bool) {
	if m.ports.Audit == nil {
		return
	}
	if m.worksOn(id) {
		m.stops.noteStop(id, "")
		return
	}
	h, err := m.loadHistory(ctx, id)
	if err != nil {
		return // advance has said so
	}
	at := m.stopped(h)
	if at != nil && at.failure == errCancelNotBegun {
		// The cancel may have begun, and its call ended, since the history was read: then it is
		// in there now.
		if h, err = m.loadHistory(ctx, id); err != nil {
			return
		}
		at = m.stopped(h)
	}
	if at == nil {
		m.stops.noteStop(id, "")
		return
	}
	if !m.stops.noteStop(id, at.op) || silent {
		return
	}
	s := &h.spec
	state, _ := h.state()
	details := map[string]any{"volume_id": s.VolumeID, "volume_name": s.VolumeName}
	if at.failure != nil {
		details["code"] = at.failure.Code
		details["reason"] = request.EventReason(strings.Join(strings.Fields(at.failure.Message), " "))
	}
	m.ports.Audit(api.EventPost{
		At: m.ports.Now(), What: "migration.stopped", Object: "migration/" + s.MigrationID, To: string(state), OpID: uuid.NewString(), Details: details,
	})
}

// worksOn says, from memory, whether an op of the migration does something now. Unlike for
// atWork, an op that waits for the operator does nothing.
func (m *Manager) worksOn(id string) bool {
	return slices.ContainsFunc(m.runner.Active(), func(st op.Status) bool {
		return st.Op.Group == id && !st.State.Final() && st.State != op.StateNeedsOperator
	})
}
