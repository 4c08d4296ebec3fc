// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Standing reports whether a migration's op on the instance waits for the operator.
func (m *Monitor) Standing(ctx context.Context, instanceID string) (standing bool, err error) {
	err = m.history.EachOpen(ctx, func(h *history.Migration) error {
		standing = standing || standingOf(h, instanceID) != nil
		return nil
	})
	return standing, err
}

func standingOf(h *history.Migration, instanceID string) *history.Op {
	if o := h.Running(); o != nil && o.State == op.StateNeedsOperator && h.Spec.InstanceID == instanceID && !h.Spec.LedByRegistry() {
		return o
	}
	return nil
}

// NameStanding makes the definition of an instance name the present image of its disk, while an op
// of the migration waits for the operator. The op keeps its locks and is not continued. Errors are
// typed for the runner.
func (m *Monitor) NameStanding(ctx context.Context, instanceID string) error {
	named := false
	err := m.history.EachOpen(ctx, func(h *history.Migration) error {
		o := standingOf(h, instanceID)
		if o == nil {
			return nil
		}
		named = true
		return m.runner.WhileParked(o.Op.ID, func() error { return m.nameStanding(ctx, h.Spec.MigrationID, o.Op.ID) })
	})
	if err == nil && !named {
		err = api.Errorf(api.CodeInstanceBusy, "no operation of a migration of instance %s waits for you any more; ask again if its definition is wrong still", instanceID)
	}
	return err
}

// nameStanding calls overlay.NameStanding while the op cannot be continued. It reads the op again,
// since the caller's copy may be outdated.
func (m *Monitor) nameStanding(ctx context.Context, migrationID, opID string) error {
	h, err := m.history.Load(ctx, migrationID)
	if err != nil {
		return err
	}
	records, err := m.journal.Records(ctx, opID)
	if err != nil {
		return request.JournalError(err)
	}
	return m.overlay.NameStanding(ctx, &h.Spec, h.Position(), &h.Op(opID).Status, records)
}
