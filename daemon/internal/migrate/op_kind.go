// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/op"
)

type opInput struct {
	move.Input
	kind string
}

// Variant implements request.Varied: a request has a goal, and the op kind is chosen when the
// request is admitted.
func (in *opInput) Variant(string) string { return in.kind }

// Keys implements request.Input.
func (in *opInput) Keys() []string {
	spec := &in.Spec
	switch move.GoalOf(in.kind) {
	case move.GoalCopy:
		if in.kind != move.KindBeginMirror { // KindBeginMirror suspends the guest
			return []string{spec.CopyKey()}
		}
	case move.GoalStart:
		return []string{spec.Key()}
	case move.GoalComplete, move.GoalCancel:
	}
	return []string{spec.Key(), spec.CopyKey()}
}

// Group implements request.Input: a migration is the group of its ops.
func (in *opInput) Group() string { return in.Spec.MigrationID }

// followUpID returns the id of the nth op of a migration, if the manager itself submits it. It is
// the same after a crash, so the op is not submitted twice.
func followUpID(migrationID string, n int) string {
	return uuid.NewSHA1(uuid.MustParse(migrationID), fmt.Appendf(nil, "op %d", n)).String()
}

// nextKind is kindFor for a migration with a history. A migration that the registry has ended is
// only released, or rolled back if src still belongs to the instance. A guest is already on src if
// another program has committed its overlay.
func (m *Manager) nextKind(ctx context.Context, h *history, what move.Goal) (string, error) {
	ended := h.abandoned() != nil
	if ended && what == move.GoalCancel && (!h.keptSrc() || h.spec.Method != move.MethodOverlay) {
		return move.KindRelease, nil
	}
	kind, err := m.kindFor(ctx, &h.spec, what)
	if kind == move.KindMirror {
		kind, err = m.mirrorKind(ctx, h)
	}
	if err == nil && !ended && (kind == move.KindCancelLive || kind == move.KindCancelLiveHeld) {
		committed, err := m.env.CommittedByOthers(ctx, &h.spec)
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
func (m *Manager) mirrorKind(ctx context.Context, h *history) (string, error) {
	if last := &h.ops[len(h.ops)-1]; last.Op.Kind == move.KindBeginMirror && last.State == op.StateDone {
		return move.KindMirror, nil
	}
	hold, err := m.env.Look.MustHold(ctx, &h.spec)
	if err != nil || !hold {
		return move.KindMirror, err
	}
	held, err := m.env.Look.BegunHeld(ctx, &h.spec)
	if err != nil || held {
		return move.KindMirror, err
	}
	return move.KindBeginMirror, nil
}

// kindFor returns the op kind for a goal, by whether the instance runs now.
func (m *Manager) kindFor(ctx context.Context, s *move.Spec, what move.Goal) (string, error) {
	switch {
	case s.Method == move.MethodMirror:
		if what == move.GoalComplete { // a cancel leaves the guest on src
			// If the guest cannot be looked at, the op finds that.
			if dom, err := m.ports.HV.Domain(ctx, s.InstanceID); err == nil {
				if err := m.env.Look.CheckSwitchable(ctx, s, dom.State); err != nil {
					return "", err
				}
			}
		}
		return map[move.Goal]string{move.GoalStart: move.KindStartMirror, move.GoalCopy: move.KindMirror, move.GoalComplete: move.KindCompleteMirror, move.GoalCancel: move.KindCancelMirror}[what], nil
	case what == move.GoalCopy:
		return move.KindCopy, nil
	case s.Method == move.MethodOffline:
		return map[move.Goal]string{move.GoalStart: move.KindStartOffline, move.GoalComplete: move.KindCompleteOffline, move.GoalCancel: move.KindCancelOffline}[what], nil
	}
	dom, err := m.ports.HV.Domain(ctx, s.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		return "", move.Undefined(s)
	}
	if err != nil {
		return "", move.CannotLookAt(s, err)
	}
	if dom.State.Active() {
		hold := false
		if what != move.GoalStart { // a start begins no job
			if err = m.env.Look.CheckSwitchable(ctx, s, dom.State); err != nil {
				return "", err
			}
			if hold, err = m.env.Look.MustHold(ctx, s); err != nil {
				return "", move.CannotLookAt(s, err)
			}
		}
		if what == move.GoalComplete && !hold { // the held plan ends a job, and begins another one
			if hold, err = m.env.BlockJob.EndNotStored(ctx, s); err != nil {
				return "", err
			}
		}
		switch {
		case what == move.GoalComplete && s.Background() && hold:
			return move.KindCompleteBackgroundHeld, nil
		case what == move.GoalComplete && s.Background():
			return move.KindCompleteBackground, nil
		case hold:
			return map[move.Goal]string{move.GoalComplete: move.KindCompleteLiveHeld, move.GoalCancel: move.KindCancelLiveHeld}[what], nil
		}
		return map[move.Goal]string{move.GoalStart: move.KindStart, move.GoalComplete: move.KindCompleteLive, move.GoalCancel: move.KindCancelLive}[what], nil
	}
	return map[move.Goal]string{move.GoalStart: move.KindStart, move.GoalComplete: move.KindCompleteCold, move.GoalCancel: move.KindCancelCold}[what], nil
}
