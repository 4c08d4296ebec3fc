// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// submit stores and starts one op of a migration. Asked is what the caller sent.
func (m *Manager) submit(ctx context.Context, kind, opID string, in steps.Input, asked any) error {
	var err error
	if in.RequestBody, err = json.Marshal(asked); err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	data, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode input of op %s: %w", opID, err)
	}
	spec := &in.Spec
	m.groups.Store(opID, spec.MigrationID)
	keys := []string{spec.Key(), spec.CopyKey()}
	switch steps.GoalOf(kind) {
	case steps.GoalCopy:
		keys = []string{spec.CopyKey()}
	case steps.GoalStart:
		keys = []string{spec.Key()}
	case steps.GoalComplete, steps.GoalCancel:
	}
	err = m.runner.Submit(ctx, op.Op{
		ID: opID, Kind: kind, Group: spec.MigrationID, Keys: keys, Input: data, CreatedAt: m.ports.Now().UTC(),
	})
	if errors.Is(err, op.ErrMismatch) {
		return idempotencyMismatch(opID)
	}
	if err != nil {
		return api.Errorf(api.CodeJournalUnavailable, "cannot begin: %v; nothing was changed", err)
	}
	return nil
}

func idempotencyMismatch(opID string) *api.Error {
	return api.Errorf(api.CodeIdempotencyMismatch, "op %s was used for another request", opID)
}

// repeated finds the migration of a request that was made before under the same
// op id; "" if there was none.
func (m *Manager) repeated(ctx context.Context, opID string, what steps.Goal, asked any) (string, error) {
	o, err := m.journal.Op(ctx, opID)
	if errors.Is(err, op.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", request.JournalError(err)
	}
	var in steps.Input
	ask, err := json.Marshal(asked)
	if err == nil {
		err = json.Unmarshal(o.Input, &in)
	}
	if err != nil {
		return "", fmt.Errorf("compare with op %s: %w", opID, err)
	}
	if steps.GoalOf(o.Kind) != what || string(in.RequestBody) != string(ask) {
		return "", idempotencyMismatch(opID)
	}
	return o.Group, nil
}

// followUpID is the id of the nth op of a migration, if the manager submits it by itself. It
// is the same after a crash, so the op is not submitted twice.
func followUpID(migrationID string, n int) string {
	return uuid.NewSHA1(uuid.MustParse(migrationID), fmt.Appendf(nil, "op %d", n)).String()
}

// nextKind is kindFor for a migration that has a history: a migration that the registry has
// ended is only released, or rolled back if src is still the instance's, and a guest whose
// overlay somebody else has committed is on src already.
func (m *Manager) nextKind(ctx context.Context, h *history, what steps.Goal) (string, error) {
	ended := h.abandoned() != nil
	if ended && what == steps.GoalCancel && (!h.keptSrc() || h.spec.Method != steps.MethodOverlay) {
		return steps.KindRelease, nil
	}
	kind, err := m.kindFor(ctx, &h.spec, what)
	if err == nil && !ended && kind == steps.KindCancelLive {
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

// rollbackKinds are the kinds of a cancel for a migration that the registry has ended.
var rollbackKinds = map[string]string{steps.KindCancelLive: steps.KindRollbackLive, steps.KindCancelCold: steps.KindRollbackCold}

// kindFor picks the op kind that reaches a goal, by whether the instance runs now.
func (m *Manager) kindFor(ctx context.Context, s *steps.Spec, what steps.Goal) (string, error) {
	switch {
	case s.Method == steps.MethodMirror:
		return map[steps.Goal]string{steps.GoalStart: steps.KindStartMirror, steps.GoalCopy: steps.KindMirror, steps.GoalComplete: steps.KindCompleteMirror, steps.GoalCancel: steps.KindCancelMirror}[what], nil
	case what == steps.GoalCopy:
		return steps.KindCopy, nil
	case s.Method == steps.MethodOffline:
		return map[steps.Goal]string{steps.GoalStart: steps.KindStartOffline, steps.GoalComplete: steps.KindCompleteOffline, steps.GoalCancel: steps.KindCancelOffline}[what], nil
	}
	dom, err := m.ports.HV.Domain(ctx, s.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		return "", api.Errorf(api.CodeNeedsOperator, "instance %s is not defined on this host any more: somebody has undefined it, or moved it to another one; its volume %s was %s (%s); define it again (virsh define), with its disk %s as it was, and call again; nothing was changed",
			s.InstanceName, s.VolumeName, s.Before(), s.Leftovers(), s.Target)
	}
	if err != nil {
		return "", steps.CannotLookAt(s, err)
	}
	if dom.State.Active() {
		return map[steps.Goal]string{steps.GoalStart: steps.KindStart, steps.GoalComplete: steps.KindCompleteLive, steps.GoalCancel: steps.KindCancelLive}[what], nil
	}
	return map[steps.Goal]string{steps.GoalStart: steps.KindStart, steps.GoalComplete: steps.KindCompleteCold, steps.GoalCancel: steps.KindCancelCold}[what], nil
}
