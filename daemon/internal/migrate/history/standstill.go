// SPDX-License-Identifier: Apache-2.0

package history

import (
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// Standstill describes a migration that has stopped until the operator's next call, or until an
// obstacle is removed. Op is the id of the failed op.
type Standstill struct {
	Op      string
	At      time.Time
	Failure *api.Error
}

// Standstill returns the migration's standstill, by the journal alone. It returns nil if the
// migration has ended, continues by itself, or waits for the operator's next call. An op that a
// cancel has stopped is a standstill until the cancel begins.
func (h *Migration) Standstill() *Standstill {
	state, failure := h.State()
	if state.Final() {
		return nil
	}
	if o := h.Running(); o != nil {
		if o.State != op.StateNeedsOperator {
			return nil
		}
		return &Standstill{Op: o.Op.ID, At: o.ParkedAt, Failure: failure}
	}
	if _, _, more := h.Next(); more || failure == nil || h.Spec.LedByRegistry() {
		return nil // the registry leads it
	}
	last := &h.Ops[len(h.Ops)-1]
	return &Standstill{Op: last.Op.ID, At: last.FinishedAt, Failure: failure}
}
