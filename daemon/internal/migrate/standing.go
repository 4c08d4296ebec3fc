// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Standing reports whether an op of a migration of an instance waits for the operator.
func (m *Manager) Standing(ctx context.Context, instanceID string) (standing bool, err error) {
	err = m.eachOpen(ctx, func(h *history) error {
		standing = standing || h.standing(instanceID) != nil
		return nil
	})
	return standing, err
}

// standing returns the op of a migration of an instance that waits for the operator, nil if none.
func (h *history) standing(instanceID string) *opView {
	if o := h.running(); o != nil && o.State == op.StateNeedsOperator && h.spec.InstanceID == instanceID && !h.spec.LedByRegistry() {
		return o
	}
	return nil
}

// NameStanding changes the definition of an instance to the present image of a migration's disk,
// while an op of the migration waits for the operator. The op keeps its locks, and is not
// continued. Errors are typed for the runner.
func (m *Manager) NameStanding(ctx context.Context, instanceID string) error {
	named := false
	err := m.eachOpen(ctx, func(h *history) error {
		o := h.standing(instanceID)
		if o == nil {
			return nil
		}
		named = true
		return m.runner.WhileParked(o.Op.ID, func() error { return m.nameStanding(ctx, h.spec.MigrationID, o.Op.ID) })
	})
	if err == nil && !named {
		err = api.Errorf(api.CodeInstanceBusy, "no operation of a migration of instance %s waits for you any more; ask again if its definition is wrong still", instanceID)
	}
	return err
}

// nameStanding calls overlay.NameStanding for an op that cannot be continued meanwhile. The
// caller's view of the op may be old.
func (m *Manager) nameStanding(ctx context.Context, migrationID, opID string) error {
	h, err := m.loadHistory(ctx, migrationID)
	if err != nil {
		return err
	}
	records, err := m.journal.Records(ctx, opID)
	if err != nil {
		return request.JournalError(err)
	}
	return m.env.Overlay.NameStanding(ctx, &h.spec, h.position(), &h.op(opID).Status, records)
}
