// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Owns reports whether ops of this kind belong to a migration.
func Owns(kind string) bool { return move.GoalOf(kind) != "" }

// Request returns the status of the request that began with this op.
func (m *Manager) Request(ctx context.Context, opID string) (api.Op, error) {
	began, err := m.History.Journal.Op(ctx, opID)
	if err != nil {
		return api.Op{}, api.NotFoundHere("operation", opID)
	}
	h, err := m.History.Load(ctx, began.Group)
	if err != nil {
		return api.Op{}, err
	}
	state, failure, last := h.RequestState(opID)
	if last == nil { // an op that the manager itself submitted
		last = h.Op(opID)
		state, failure = last.State, move.APIError(last.Failure)
	}
	out := request.Render(&last.Status, state, failure)
	out.ID, out.Kind, out.CreatedAt, out.MigrationID = opID, began.Kind, began.CreatedAt, began.Group
	out.Location, err = m.madeLocation(ctx, &last.Status)
	return out, err
}

// Await returns the status of the request that began with this op, once the request has ended or
// needs the operator, or ctx ends.
func (m *Manager) Await(ctx context.Context, opID string) (api.Op, error) {
	now, err := m.Request(ctx, opID)
	if err != nil {
		return now, err
	}
	// Watch begins with the present state, so no change is missed.
	watchErr := m.Watch(ctx, now.MigrationID, func(api.Event) bool {
		now, err = m.Request(context.WithoutCancel(ctx), opID)
		return err == nil && !op.State(now.State).Settled()
	})
	if err == nil && ctx.Err() == nil {
		err = watchErr
	}
	return now, err
}

// RenderOp returns the API's document of one unfinished op, without the other ops of the request.
func RenderOp(st *op.Status) api.Op {
	out := request.Render(st, st.State, move.APIError(st.Failure))
	out.MigrationID = st.Op.Group
	return out
}

func (m *Manager) madeLocation(ctx context.Context, st *op.Status) (*api.Location, error) {
	if st.Op.Kind != move.KindCopySaved && st.Op.Kind != move.KindMakeLive || st.State != op.StateDone {
		return nil, nil
	}
	var in move.Input
	if err := json.Unmarshal(st.Op.Input, &in); err != nil {
		return nil, fmt.Errorf("decode input of operation: %w", err)
	}
	dst, err := m.env.Seal.MadeDst(ctx, &in.Spec)
	return &dst, err
}
