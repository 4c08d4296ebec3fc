// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/op"
)

type opInput struct {
	steps.Input
	kind string
}

// Variant implements request.Varied: a request has a goal, and the op kind is chosen when the
// request is admitted.
func (in *opInput) Variant(string) string { return in.kind }

// Keys implements request.Input.
func (in *opInput) Keys() []string {
	spec := &in.Spec
	switch steps.GoalOf(in.kind) {
	case steps.GoalCopy:
		if in.kind != steps.KindBeginMirror { // KindBeginMirror suspends the guest
			return []string{spec.CopyKey()}
		}
	case steps.GoalStart:
		return []string{spec.Key()}
	case steps.GoalComplete, steps.GoalCancel:
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
func (m *Manager) nextKind(ctx context.Context, h *history, what steps.Goal) (string, error) {
	ended := h.abandoned() != nil
	if ended && what == steps.GoalCancel && (!h.keptSrc() || h.spec.Method != steps.MethodOverlay) {
		return steps.KindRelease, nil
	}
	kind, err := m.kindFor(ctx, &h.spec, what)
	if kind == steps.KindMirror {
		kind, err = m.mirrorKind(ctx, h)
	}
	if err == nil && !ended && (kind == steps.KindCancelLive || kind == steps.KindCancelLiveHeld) {
		committed, err := m.env.CommittedByOthers(ctx, &h.spec)
		if err != nil {
			return "", err
		}
		if committed {
			return steps.KindCancelCommitted, nil
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
	steps.KindCancelLive: steps.KindRollbackLive, steps.KindCancelLiveHeld: steps.KindRollbackLiveHeld, steps.KindCancelCold: steps.KindRollbackCold,
}

// mirrorKind decides whether a mirror continues, or first has to begin with its guest suspended.
// After an op that began it so, the mirror follows without another look: if the job is gone, that
// op finds out, and the manager plans again.
func (m *Manager) mirrorKind(ctx context.Context, h *history) (string, error) {
	if last := &h.ops[len(h.ops)-1]; last.Op.Kind == steps.KindBeginMirror && last.State == op.StateDone {
		return steps.KindMirror, nil
	}
	hold, err := m.env.MustHold(ctx, &h.spec)
	if err != nil || !hold {
		return steps.KindMirror, err
	}
	held, err := m.env.BegunHeld(ctx, &h.spec)
	if err != nil || held {
		return steps.KindMirror, err
	}
	return steps.KindBeginMirror, nil
}

// kindFor returns the op kind for a goal, by whether the instance runs now.
func (m *Manager) kindFor(ctx context.Context, s *steps.Spec, what steps.Goal) (string, error) {
	switch {
	case s.Method == steps.MethodMirror:
		if what == steps.GoalComplete { // a cancel leaves the guest on src
			// If the guest cannot be looked at, the op finds that.
			if dom, err := m.ports.HV.Domain(ctx, s.InstanceID); err == nil {
				if err := m.env.CheckSwitchable(ctx, s, dom.State); err != nil {
					return "", err
				}
			}
		}
		return map[steps.Goal]string{steps.GoalStart: steps.KindStartMirror, steps.GoalCopy: steps.KindMirror, steps.GoalComplete: steps.KindCompleteMirror, steps.GoalCancel: steps.KindCancelMirror}[what], nil
	case what == steps.GoalCopy:
		return steps.KindCopy, nil
	case s.Method == steps.MethodOffline:
		return map[steps.Goal]string{steps.GoalStart: steps.KindStartOffline, steps.GoalComplete: steps.KindCompleteOffline, steps.GoalCancel: steps.KindCancelOffline}[what], nil
	}
	dom, err := m.ports.HV.Domain(ctx, s.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		return "", steps.Undefined(s)
	}
	if err != nil {
		return "", steps.CannotLookAt(s, err)
	}
	if dom.State.Active() {
		hold := false
		if what != steps.GoalStart { // a start begins no job
			if err = m.env.CheckSwitchable(ctx, s, dom.State); err != nil {
				return "", err
			}
			if hold, err = m.env.MustHold(ctx, s); err != nil {
				return "", steps.CannotLookAt(s, err)
			}
		}
		if what == steps.GoalComplete && !hold { // the held plan ends a job, and begins another one
			if hold, err = m.env.EndNotStored(ctx, s); err != nil {
				return "", err
			}
		}
		switch {
		case what == steps.GoalComplete && s.Background() && hold:
			return steps.KindCompleteBackgroundHeld, nil
		case what == steps.GoalComplete && s.Background():
			return steps.KindCompleteBackground, nil
		case hold:
			return map[steps.Goal]string{steps.GoalComplete: steps.KindCompleteLiveHeld, steps.GoalCancel: steps.KindCancelLiveHeld}[what], nil
		}
		return map[steps.Goal]string{steps.GoalStart: steps.KindStart, steps.GoalComplete: steps.KindCompleteLive, steps.GoalCancel: steps.KindCancelLive}[what], nil
	}
	return map[steps.Goal]string{steps.GoalStart: steps.KindStart, steps.GoalComplete: steps.KindCompleteCold, steps.GoalCancel: steps.KindCancelCold}[what], nil
}
