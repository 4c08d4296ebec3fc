// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stop is a standstill: nothing more is done for the migration until somebody asks for it.
type stop struct {
	op      string // whose failure it is
	at      time.Time
	failure *api.Error
}

// stopped returns the standstill of a migration, nil if the migration is over, goes on by
// itself, or waits for the next call of whoever makes it step by step.
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
	if _, _, more := h.next(); more || failure == nil || h.spec.Method == steps.MethodSave {
		return nil // a move with all guests paused is led by the registry
	}
	last := &h.ops[len(h.ops)-1]
	if failure.Message == errCancelled.Message {
		return nil // whoever asked for the cancel begins it now
	}
	return &stop{op: last.Op.ID, at: last.FinishedAt, failure: failure}
}

// maxReason bounds the reason in an event, which may not be large.
const maxReason = 1000

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
	at := h.stopped()
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
		why := strings.Join(strings.Fields(at.failure.Message), " ")
		details["reason"] = strings.ToValidUTF8(why[:min(len(why), maxReason)], "")
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
