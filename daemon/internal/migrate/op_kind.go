// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/op"
)

// followUpID returns the id of the nth op of a migration, if the manager itself submits it. It is
// the same after a crash, so the op is not submitted twice.
func followUpID(migrationID string, n int) string {
	return uuid.NewSHA1(uuid.MustParse(migrationID), fmt.Appendf(nil, "op %d", n)).String()
}

// nextKind is KindFor for a migration with a history. A migration that the registry has ended is
// only released, or rolled back if src still belongs to the instance. A guest is already on src if
// another program has committed its overlay.
func (m *Manager) nextKind(ctx context.Context, h *history.Migration, what move.Goal) (string, error) {
	ended := h.Abandoned() != nil
	if ended && what == move.GoalCancel && (!h.KeptSrc() || h.Spec.Method != move.MethodOverlay) {
		return move.KindRelease, nil
	}
	kind, err := m.env.KindFor(ctx, &h.Spec, what)
	if kind == move.KindMirror {
		kind, err = m.mirrorKind(ctx, h)
	}
	if err == nil && !ended && (kind == move.KindCancelLive || kind == move.KindCancelLiveHeld) {
		committed, err := m.env.CommittedByOthers(ctx, &h.Spec)
		if err != nil {
			return "", err
		}
		if committed {
			return move.KindCancelCommitted, nil
		}
	}
	if back, ok := rollbackKinds[kind]; ok && ended {
		kind = back
	}
	return kind, err
}

// rollbackKinds has, for each kind of cancel, its replacement if the registry has ended the
// migration.
var rollbackKinds = map[string]string{
	move.KindCancelLive: move.KindRollbackLive, move.KindCancelLiveHeld: move.KindRollbackLiveHeld, move.KindCancelCold: move.KindRollbackCold,
}

// mirrorKind decides whether a mirror continues, or first has to begin with its guest suspended.
// After an op that began it so, the mirror follows without another look: if the job is gone, that
// op finds out, and the manager plans again.
func (m *Manager) mirrorKind(ctx context.Context, h *history.Migration) (string, error) {
	if last := &h.Ops[len(h.Ops)-1]; last.Op.Kind == move.KindBeginMirror && last.State == op.StateDone {
		return move.KindMirror, nil
	}
	hold, err := m.env.Look.MustHold(ctx, &h.Spec)
	if err != nil || !hold {
		return move.KindMirror, err
	}
	held, err := m.env.Look.BegunHeld(ctx, &h.Spec)
	if err != nil || held {
		return move.KindMirror, err
	}
	return move.KindBeginMirror, nil
}
