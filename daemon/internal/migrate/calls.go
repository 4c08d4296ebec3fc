// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Call is a copy, complete or cancel of a started migration. Subject is the id of the src
// attachment, or of the migration of an unattached volume.
type Call struct {
	OpID    string
	Subject string
	// DstAttachmentID is the caller's destination attachment in a complete; empty for an
	// unattached volume.
	DstAttachmentID string
}

// Find returns the id of the migration that subject names, by its id or its src attachment. Of
// several migrations it returns the open one, else the newest. If there is none it returns an
// *api.Error with no_migration.
func (m *Manager) Find(ctx context.Context, subject string) (string, error) {
	ids, err := m.History.IDs(ctx)
	if err != nil {
		return "", err
	}
	newest := ""
	for _, id := range ids {
		if id == subject {
			return id, nil
		}
		h, err := m.History.Load(ctx, id)
		if err != nil {
			return "", err
		}
		if subject == "" || h.Spec.SrcAttachmentID != subject {
			continue
		}
		newest = id
		if state, _ := h.State(); !state.Final() {
			return id, nil
		}
	}
	if newest != "" {
		return newest, nil
	}
	return "", api.Errorf(api.CodeNoMigration, "no migration was started on %s; `volferryctl migration start` begins one", subject)
}

// Copy begins the built-in copy of a started migration, or continues a failed copy.
func (m *Manager) Copy(ctx context.Context, c Call) (api.Migration, string, error) {
	return m.call(ctx, move.GoalCopy, c, func(h *history.Migration, state api.MigrationState) error {
		switch state {
		case api.MigrationStarted:
			return m.notFolding(ctx, h)
		case api.MigrationStarting:
			return tooEarly(h, "copy")
		default:
			return wrongState(h, "copy", state)
		}
	})
}

// notFolding refuses a copy while the block job of an earlier complete op writes to dst: the copy
// would overwrite the guest's newer writes.
func (m *Manager) notFolding(ctx context.Context, h *history.Migration) error {
	s := &h.Spec
	if h.Find(move.GoalComplete) == nil || !s.Attached() {
		return nil
	}
	runs, err := m.env.Move.JobRuns(ctx, s)
	if err != nil {
		return request.NoHypervisor(err)
	}
	if !runs {
		return nil
	}
	return api.Errorf(api.CodeStateForbidden, "cannot copy volume %s to %s: the block job of a complete that did not come to its end still writes there; complete goes on with it, cancel ends it",
		s.VolumeName, s.Dst.Path)
}

// Complete switches the instance to dst, if dst is a copy of src.
func (m *Manager) Complete(ctx context.Context, c Call) (api.Migration, string, error) {
	return m.call(ctx, move.GoalComplete, c, func(h *history.Migration, state api.MigrationState) error {
		switch state {
		case api.MigrationCopied:
			if err := m.env.Transfer.CheckNotResized(ctx, &h.Spec); err != nil {
				return err
			}
			return m.registryAnswers(ctx, h)
		case api.MigrationStarted:
			if err := m.copyMayBeThere(ctx, h); err != nil {
				return err
			}
			return m.registryAnswers(ctx, h)
		case api.MigrationStarting:
			return tooEarly(h, "complete")
		case api.MigrationCopying:
			return api.Errorf(api.CodeCopyNotVerified, "cannot complete the migration of volume %s: the copy is still being made", h.Spec.VolumeName)
		default:
			return wrongState(h, "complete", state)
		}
	})
}

// registryAnswers refuses a complete while the registry does not answer: the op would stop
// half-way.
func (m *Manager) registryAnswers(ctx context.Context, h *history.Migration) error {
	_, err := m.ports.Registry.Migration(ctx, h.Spec.MigrationID)
	return err
}

func (m *Manager) copyMayBeThere(ctx context.Context, h *history.Migration) error {
	s := &h.Spec
	if err := m.env.Transfer.CheckNotResized(ctx, s); err != nil {
		return err
	}
	notThere := api.Errorf(api.CodeCopyNotVerified,
		"cannot complete the migration of volume %s: it has not been copied to %s yet; run `%s`, or copy it yourself",
		s.VolumeName, s.Dst.Path, shell.Line("volferryctl", "migration", "copy", s.MigrationID))
	if h.Find(move.GoalCopy) != nil {
		return notThere // the built-in copy failed
	}
	if s.ExternalCopy || !s.CreateDst || !s.DstKind().Witnessed {
		return nil
	}
	info, err := m.ports.Images.Inspect(ctx, s.Dst)
	if err != nil {
		return err
	}
	if info.AllocatedBytes <= transfer.EmptyImageBytes && !info.Block {
		return notThere
	}
	return nil
}

// Cancel brings the instance back to src. It always succeeds before the pivot.
func (m *Manager) Cancel(ctx context.Context, c Call) (api.Migration, string, error) {
	id, err := m.Find(ctx, c.Subject)
	if err != nil {
		return api.Migration{}, "", err
	}
	defer m.watch.Notify(id) // Run audits a standstill if the cancel has not begun
	defer m.cancels.begin(id)()
	// The cancel continues if the caller disconnects.
	ctx = context.WithoutCancel(ctx)
	if err := m.mayBringBack(ctx, id); err != nil {
		return api.Migration{}, "", err
	}
	stopped := ""
	for {
		what, err := m.stopUncommitted(ctx, id)
		if err != nil {
			return api.Migration{}, "", err
		}
		if stopped = cmp.Or(what, stopped); stopped == string(move.GoalStart) {
			if mig, opID, err := m.startTakenBack(ctx, id); opID != "" || err != nil {
				return mig, opID, err
			}
		}
		mig, opID, err := m.cancel(ctx, c)
		switch {
		case errors.Is(err, errOtherOpBegan):
		case err != nil && stopped != "":
			return mig, opID, notTakenBack(id, stopped, err)
		default:
			return mig, opID, err
		}
	}
}

// mayBringBack refuses a cancel if the guest may not write to src, before the cancel is recorded
// and before it stops a copy. It admits a cancel that has begun.
func (m *Manager) mayBringBack(ctx context.Context, id string) error {
	h, err := m.History.Load(ctx, id)
	if err != nil {
		return err
	}
	state, _ := h.State()
	if h.Spec.LedByRegistry() || state == api.MigrationCancelling || !h.OnOverlay() {
		return nil
	}
	err = m.env.Look.MayBringBack(ctx, &h.Spec)
	if errors.Is(err, hv.ErrUnavailable) {
		return nil // stopUncommitted has the refusal
	}
	return err
}

// startTakenBack returns the migration, and the op id of its start if a cancel has undone the
// start. Without an op id the migration is still to be cancelled.
func (m *Manager) startTakenBack(ctx context.Context, id string) (api.Migration, string, error) {
	h, err := m.History.Load(ctx, id)
	if err != nil {
		return api.Migration{}, "", err
	}
	if state, _ := h.State(); state != api.MigrationError || !h.Ops[0].Undone() {
		return api.Migration{}, "", nil
	}
	return m.render(h), h.Ops[0].RequestID, nil
}

func notTakenBack(id, stopped string, err error) error {
	var refused *api.Error
	if !errors.As(err, &refused) {
		return err
	}
	said := *refused
	said.Message = fmt.Sprintf("%s; the %s was stopped for this cancel, and nothing was taken back yet: the migration stands as it is, also when that is mended, until you cancel again: `%s`",
		strings.TrimSuffix(said.Message, "; nothing was changed"), stopped, shell.Line("volferryctl", "migration", "cancel", id))
	return &said
}

// errOtherOpBegan means that the manager has begun another op between the look at the migration
// and the cancel's admission.
var errOtherOpBegan = errors.New("another op has begun")

func (m *Manager) cancel(ctx context.Context, c Call) (api.Migration, string, error) {
	return m.call(ctx, move.GoalCancel, c, func(h *history.Migration, state api.MigrationState) error {
		if o := h.Running(); o != nil && o.Goal != move.GoalCancel {
			return errOtherOpBegan
		}
		switch state {
		case api.MigrationStarted, api.MigrationCopying, api.MigrationCopied, api.MigrationCompleting, api.MigrationCancelling:
			return nil
		case api.MigrationCompleted:
			return plans.PastPointOfNoReturn(&h.Spec)
		default:
			return wrongState(h, "cancel", state)
		}
	})
}

// stopUncommitted stops the op of a copy, or of a complete before its commit point, for a cancel,
// and returns the op's goal, or "". It waits for the end of a start, which takes a second. If a
// start waits for the operator, it undoes the start, or continues it if the guest is on the
// overlay. If libvirt does not answer it stops nothing, since the cancel could not begin.
func (m *Manager) stopUncommitted(ctx context.Context, id string) (stopped string, err error) {
	h, err := m.History.Load(ctx, id)
	if err != nil {
		return "", err
	}
	o := h.Running()
	if o == nil || o.Goal == move.GoalCancel || h.Spec.LedByRegistry() {
		return "", nil
	}
	parked := o.State == op.StateNeedsOperator
	if h.Spec.Attached() {
		if _, err := m.ports.HV.Domain(ctx, h.Spec.InstanceID); errors.Is(err, hv.ErrUnavailable) {
			now := map[bool]string{false: "goes on", true: "waits for you as before"}[parked]
			return "", api.Errorf(api.CodeHypervisorUnavailable, "libvirt does not answer, so that migration %s of volume %s cannot be taken back now; nothing was changed, and its %s %s; cancel again once libvirt is back",
				id, h.Spec.VolumeName, o.Goal, now)
		}
	}
	if err := m.History.ContinueParked(ctx, o); err != nil {
		return "", err
	}
	if o.Goal != move.GoalStart || parked {
		err := m.runner.Interrupt(o.Op.ID, history.ErrCancelled)
		switch {
		case errors.Is(err, op.ErrCommitted) && o.Goal == move.GoalComplete:
			return "", plans.PastPointOfNoReturn(&h.Spec)
		case err == nil, errors.Is(err, op.ErrFinished) && parked && o.Goal == move.GoalStart:
			stopped = string(o.Goal)
		case errors.Is(err, op.ErrCommitted), errors.Is(err, op.ErrFinished), errors.Is(err, op.ErrParked): // handled below
		default:
			return "", fmt.Errorf("stop what runs: %w", err)
		}
	}
	if _, err := m.runner.Wait(ctx, o.Op.ID); err != nil {
		return stopped, fmt.Errorf("wait for what runs to stop: %w", err)
	}
	return stopped, nil
}

var variants = map[move.Goal][]string{move.GoalCancel: {move.KindRollback}}

// call submits the op of a copy, complete or cancel. If the call is repeated, or the migration has
// an op with this goal, it returns that op. Otherwise check accepts or refuses the call.
func (m *Manager) call(ctx context.Context, goal move.Goal, c Call, check func(*history.Migration, api.MigrationState) error) (api.Migration, string, error) {
	var h *history.Migration
	o, err := m.admission.Submit(ctx, request.Request{
		OpID: c.OpID, Kind: move.KindFor(goal), Variants: variants[goal], Body: c,
		Decide: func(ctx context.Context) (_ request.Input, err error) {
			if h, err = m.called(ctx, goal, c); err != nil {
				return nil, err
			}
			return m.decideCall(ctx, h, goal, c, check)
		},
	})
	switch {
	case errors.Is(err, request.ErrServed):
		same := serving(h, goal)
		if err := m.recordEnd(ctx, h); request.Away(err) {
			m.recordEndsSoon()
		} else if err != nil && api.CodeOf(err) != api.CodeNotFound {
			return api.Migration{}, "", err
		}
		return m.render(h), same.RequestID, m.History.ContinueParked(ctx, same)
	case err != nil:
		return api.Migration{}, "", err
	}
	mig, err := m.Get(ctx, o.Group)
	return mig, c.OpID, err
}

func (m *Manager) called(ctx context.Context, goal move.Goal, c Call) (*history.Migration, error) {
	id, err := m.Find(ctx, c.Subject)
	if err != nil {
		return nil, err
	}
	h, err := m.History.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	if goal == move.GoalComplete && c.DstAttachmentID != h.Spec.DstAttachmentID {
		return nil, api.Errorf(api.CodeNoMigration, "no migration from attachment %s to attachment %q; the last one goes to %s",
			h.Spec.SrcAttachmentID, c.DstAttachmentID, h.Spec.DstAttachmentID)
	}
	state, _ := h.State()
	if state == api.MigrationNeedsOperator && h.Running().Goal != goal {
		return nil, wrongState(h, string(goal), state)
	}
	return h, notCalledByHand(h, goal, state)
}

func (m *Manager) decideCall(ctx context.Context, h *history.Migration, goal move.Goal, c Call, check func(*history.Migration, api.MigrationState) error) (*history.OpInput, error) {
	if serving(h, goal) != nil {
		return nil, request.ErrServed
	}
	state, _ := h.State()
	if err := check(h, state); err != nil {
		return nil, err
	}
	planned, err := m.planOp(ctx, h, goal)
	if err != nil {
		return nil, err
	}
	return &history.OpInput{Input: move.Input{Spec: h.Spec, RequestID: c.OpID, Why: h.Abandoned()}, Planned: planned}, nil
}

func notCalledByHand(h *history.Migration, what move.Goal, state api.MigrationState) error {
	if h.Spec.LedByRegistry() {
		return api.Errorf(api.CodeStateForbidden, "cannot %s the migration of volume %s on this host: the registry leads it", what, h.Spec.VolumeName)
	}
	if h.Spec.Method != move.MethodMirror || what == move.GoalCancel || state == api.MigrationNeedsOperator {
		return nil
	}
	if state.Final() {
		return wrongState(h, string(what), state)
	}
	return api.Errorf(api.CodeStateForbidden, "cannot %s the migration of volume %s by hand: it is a mirror, which goes on to its end by itself (it is %s); `%s` ends it",
		what, h.Spec.VolumeName, state, shell.Line("volferryctl", "migration", "cancel", h.Spec.MigrationID)).With("state", state)
}

func serving(h *history.Migration, what move.Goal) *history.Op {
	o := h.Find(what)
	if o == nil || o.State == op.StateUndoing || o.Undone() {
		return nil
	}
	return o
}

func tooEarly(h *history.Migration, verb string) *api.Error {
	return api.Errorf(api.CodeMigrationActive, "cannot %s the migration of volume %s yet: it is still starting", verb, h.Spec.VolumeName).
		With("migration_id", h.Spec.MigrationID)
}

func wrongState(h *history.Migration, verb string, state api.MigrationState) *api.Error {
	if state == api.MigrationNeedsOperator {
		_, why := h.State()
		goal := h.Running().Goal
		cure, known := why.Details[api.DetailCure].(string)
		if !known {
			cure = h.Again(goal)
		}
		return api.Errorf(api.CodeNeedsOperator, "cannot %s the migration of volume %s, which waits for you in the middle of its %s: %s; once you have seen that (`%s`), this goes on with it: `%s`",
			verb, h.Spec.VolumeName, goal, why, shell.Line("volferryctl", "volume", "which", h.Spec.VolumeName), strings.Join(strings.Split(cure, api.CureSeparator), "`, `")).With(api.DetailCure, cure)
	}
	return api.Errorf(api.CodeNoMigration, "cannot %s the migration of volume %s: it is %s", verb, h.Spec.VolumeName, state).
		With("migration_id", h.Spec.MigrationID).With("state", state)
}

// Update changes the options of a migration's copy.
func (m *Manager) Update(ctx context.Context, id string, in api.MigrationUpdate) (api.Migration, error) {
	if err := in.Check(); err != nil {
		return api.Migration{}, err
	}
	mig, err := m.Get(ctx, id)
	if err != nil {
		return mig, err
	}
	if mig.State.Final() {
		return mig, api.Errorf(api.CodeNoMigration, "migration %s is %s; there is nothing to slow down", mig.ID, mig.State)
	}
	h, err := m.History.Load(ctx, id)
	if err == nil {
		err = m.env.Move.Update(&h.Spec, in)
	}
	if err != nil {
		return mig, fmt.Errorf("keep the change of migration %s: %w", id, err)
	}
	m.watch.Notify(id)
	return m.Get(ctx, id)
}
