// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// stopped returns the standstill of a migration, nil if the migration has ended, continues by
// itself, or waits for its next call by hand.
func (m *Manager) stopped(h *history.Migration) *history.Standstill {
	at := h.Standstill()
	switch {
	case at == nil:
		return m.heldUp(h)
	case at.Failure == nil || at.Failure.Message != history.ErrCancelled.Message:
		return at
	case m.cancels.has(h.Spec.MigrationID):
		return nil // the cancel is about to begin
	}
	at.Failure = errCancelNotBegun
	return at
}

var errCancelNotBegun = api.Errorf(api.CodeStateForbidden, "a cancel has stopped what ran, and has not begun itself: volferryd ended meanwhile, or could not begin it; nothing was taken back yet")

// heldUpAfter is how long the next op may be delayed before the migration counts as stopped.
const heldUpAfter = 10 * time.Minute

// heldUp returns the standstill of a migration with a next op that always fails to begin, for
// example because the guest is saved.
func (m *Manager) heldUp(h *history.Migration) *history.Standstill {
	why := m.retries.why(h.Spec.MigrationID)
	if _, _, more := h.Next(); !more || why == nil {
		return nil
	}
	last := &h.Ops[len(h.Ops)-1]
	if m.ports.Now().Sub(last.FinishedAt) < heldUpAfter {
		return nil
	}
	return &history.Standstill{Op: last.Op.ID, At: last.FinishedAt, Failure: api.AsError(look.HVRefusal(request.Refused(why)))}
}

// auditStop adds to the audit trail that the migration has stopped, once for each standstill. With
// silent it only remembers the standstill: the trail has those from before the daemon's start.
func (m *Manager) auditStop(ctx context.Context, id string, silent bool) {
	if m.ports.Audit == nil {
		return
	}
	if m.worksOn(id) {
		m.stops.noteStop(id, "")
		return
	}
	h, err := m.History.Load(ctx, id)
	if err != nil {
		return
	}
	at := m.stopped(h)
	if at != nil && at.Failure == errCancelNotBegun {
		// The cancel may have begun, and its call ended, since the history was read.
		if h, err = m.History.Load(ctx, id); err != nil {
			return
		}
		at = m.stopped(h)
	}
	if at == nil {
		m.stops.noteStop(id, "")
		return
	}
	if !m.stops.noteStop(id, at.Op) || silent {
		return
	}
	s := &h.Spec
	state, _ := h.State()
	details := map[string]any{"volume_id": s.VolumeID, "volume_name": s.VolumeName}
	if at.Failure != nil {
		details["code"] = at.Failure.Code
		details["reason"] = request.EventReason(strings.Join(strings.Fields(at.Failure.Message), " "))
	}
	m.ports.Audit(api.EventPost{
		At: m.ports.Now(), What: "migration.stopped", Object: "migration/" + s.MigrationID, To: string(state), OpID: uuid.NewString(), Details: details,
	})
}

// worksOn reports, from memory, whether an op of the migration runs and does not wait for the
// operator.
func (m *Manager) worksOn(id string) bool {
	return slices.ContainsFunc(m.runner.Active(), func(st op.Status) bool {
		return st.Op.Group == id && !st.State.Final() && st.State != op.StateNeedsOperator
	})
}
