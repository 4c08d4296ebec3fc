// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"

	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Owns says whether the ops of this kind are a migration's, so that Request tells how they
// stand.
func Owns(kind string) bool { return steps.GoalOf(kind) != "" }

// Request returns how the request stands that began with this op of a migration.
func (m *Manager) Request(ctx context.Context, opID string) (api.Op, error) {
	began, err := m.journal.Op(ctx, opID)
	if err != nil {
		return api.Op{}, api.Errorf(api.CodeNotFound, "no op %s", opID)
	}
	h, err := m.loadHistory(ctx, began.Group)
	if err != nil {
		return api.Op{}, err
	}
	state, failure, last := h.requestState(opID)
	if last == nil { // an op that the manager submitted by itself
		last = h.op(opID)
		state, failure = last.State, steps.APIError(last.Failure)
	}
	out := request.Render(&last.Status, state, failure)
	out.ID, out.Kind, out.CreatedAt, out.MigrationID, out.Location = opID, began.Kind, began.CreatedAt, began.Group, madeLocation(&last.Status)
	return out, nil
}

// Await returns how the request stands that began with this op once it is over or needs the
// operator, or how it stands when ctx ends: that is no error.
func (m *Manager) Await(ctx context.Context, opID string) (api.Op, error) {
	now, err := m.Request(ctx, opID)
	if err != nil {
		return now, err
	}
	// Watch begins with how things are, so that nothing is missed in between.
	watchErr := m.Watch(ctx, now.MigrationID, func(api.Event) bool {
		now, err = m.Request(context.WithoutCancel(ctx), opID)
		return err == nil && !op.State(now.State).Settled()
	})
	if err == nil && ctx.Err() == nil {
		err = watchErr
	}
	return now, err
}

// RenderOp makes the API's document of one op of a migration, whatever other ops serve the
// same request.
func RenderOp(st *op.Status) api.Op {
	out := request.Render(st, st.State, steps.APIError(st.Failure))
	out.MigrationID, out.Location = st.Op.Group, madeLocation(st)
	return out
}

// madeLocation is the dst that an op of CopySaved has made, nil for other ops and before the
// end of the op.
func madeLocation(st *op.Status) *api.Location {
	if st.Op.Kind != steps.KindCopySaved || st.State != op.StateDone {
		return nil
	}
	var in steps.Input
	if json.Unmarshal(st.Op.Input, &in) != nil {
		return nil
	}
	return &in.Spec.Dst
}
