// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
)

// followUpID returns the id of a migration's nth op, if the manager itself submits it. The id is
// the same after a crash, so the op is not submitted twice.
func followUpID(migrationID string, n int) string {
	return uuid.NewSHA1(uuid.MustParse(migrationID), fmt.Appendf(nil, "op %d", n)).String()
}

// planOp plans the next op of a migration. If the registry has ended the migration, a cancel rolls
// back if src still belongs to the instance, and otherwise only releases the instance.
func (m *Manager) planOp(ctx context.Context, h *history.Migration, goal move.Goal) (op.Op, error) {
	way, err := m.wayOf(ctx, h, goal)
	if err != nil {
		return op.Op{}, err
	}
	return m.env.Plan(goal, way), nil
}

func (m *Manager) wayOf(ctx context.Context, h *history.Migration, goal move.Goal) (plans.Way, error) {
	ended := h.Abandoned() != nil
	if ended && goal == move.GoalCancel && (!h.KeptSrc() || h.Spec.Method != move.MethodOverlay) {
		return plans.Way{Method: h.Spec.Method, Lost: true}, nil
	}
	way, err := m.env.WayFor(ctx, &h.Spec, goal)
	switch {
	case err != nil:
	case goal == move.GoalCopy && way.Method == move.MethodMirror:
		way.OnlyBegins, err = m.beginsMirror(ctx, h)
	case goal == move.GoalCancel:
		way.Ended = ended
		if way.Running && !ended {
			way.Committed, err = m.env.CommittedByOthers(ctx, &h.Spec)
		}
	}
	return way, err
}

// beginsMirror reports whether the next op must only begin the mirror, with the guest suspended.
// After such an op it returns false without a look at the job: if the job is gone, the next op
// finds that, and the manager plans again.
func (m *Manager) beginsMirror(ctx context.Context, h *history.Migration) (bool, error) {
	if last := &h.Ops[len(h.Ops)-1]; last.BeginsMirror() && last.State == op.StateDone {
		return false, nil
	}
	hold, err := m.env.Look.MustHold(ctx, &h.Spec)
	if err != nil || !hold {
		return false, err
	}
	held, err := m.env.Look.BegunHeld(ctx, &h.Spec)
	return err == nil && !held, err
}
