// SPDX-License-Identifier: Apache-2.0

package history

import (
	"maps"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// State returns the state of the migration and, if its last op failed, the reason.
func (h *Migration) State() (api.MigrationState, *api.Error) {
	if h.Spec.LedByRegistry() {
		return h.stateOfSaved()
	}
	state, failure := api.MigrationStarting, (*api.Error)(nil)
	for i := range h.Ops {
		o := &h.Ops[i]
		switch o.State {
		case op.StateNeedsOperator:
			return api.MigrationNeedsOperator, h.standstill(o)
		case op.StateRunning, op.StateUndoing:
			state, failure = during[o.Goal], move.APIError(o.Failure)
		case op.StateDone:
			state, failure = After[o.Goal], o.Why
			switch {
			case o.abandoned() && h.Spec.Attached():
				state = api.MigrationCancelling // it is cancelled or released next
			case o.abandoned(), o.Op.Has(overlay.HandOverStep):
				state = api.MigrationError
			case o.BeginsMirror():
				state = api.MigrationStarted
			}
			if state.Final() {
				return state, failure
			}
		case op.StateUndone:
			if !o.overtaken() || h.Replans() >= MaxReplans {
				failure = move.APIError(o.Failure)
			}
			state = h.stateUndone(o, i, state)
			if state.Final() {
				return state, failure
			}
		}
	}
	return state, failure
}

// standstill returns the error of an op that waits for the operator, and appends the command that
// continues the op to the error's cure.
func (h *Migration) standstill(o *Op) *api.Error {
	why := move.APIError(o.Failure)
	cure, known := why.Details[api.DetailCure].(string)
	if !known {
		return why
	}
	again := *why
	again.Details = maps.Clone(why.Details)
	return again.With(api.DetailCure, cure+api.CureSeparator+h.Again(o.Goal))
}

// Again returns the command that continues an op that waits for the operator. For a start it is a
// cancel, which undoes or completes the start.
func (h *Migration) Again(goal move.Goal) string {
	mig := h.Spec.ForCommands()
	switch goal {
	case move.GoalComplete:
		return mig.CompleteCommand()
	case move.GoalCopy:
		return mig.CopyCommand()
	default:
		return shell.Line("volferryctl", "migration", "cancel", mig.Ref())
	}
}

var during = map[move.Goal]api.MigrationState{
	move.GoalStart: api.MigrationStarting, move.GoalCopy: api.MigrationCopying,
	move.GoalComplete: api.MigrationCompleting, move.GoalCancel: api.MigrationCancelling,
}

// After has, by the goal of an op, the migration's state after the op.
var After = map[move.Goal]api.MigrationState{
	move.GoalStart: api.MigrationStarted, move.GoalCopy: api.MigrationCopied,
	move.GoalComplete: api.MigrationCompleted, move.GoalCancel: api.MigrationCancelled,
}

// stateUndone returns the migration's state after an undone op. After an admitted cancel it is
// always cancelling, since src may have a part of the overlay.
func (h *Migration) stateUndone(o *Op, i int, before api.MigrationState) api.MigrationState {
	switch {
	case o.abandoned() && h.Spec.Attached():
		return api.MigrationCancelling // it is cancelled or released next
	case o.Goal == move.GoalStart, o.abandoned():
		return api.MigrationError
	case o.Goal == move.GoalCancel && h.refusedAtOnce(i):
		return before
	case o.Goal == move.GoalCancel:
		return api.MigrationCancelling
	case o.Goal == move.GoalComplete && h.CopiedBefore(i) && h.Spec.Method != move.MethodMirror:
		return api.MigrationCopied
	}
	return api.MigrationStarted
}

func (h *Migration) stateOfSaved() (api.MigrationState, *api.Error) {
	last := &h.Ops[len(h.Ops)-1]
	switch {
	case last.State == op.StateNeedsOperator:
		return api.MigrationNeedsOperator, h.standstill(last)
	case !last.State.Final():
		return during[last.Goal], move.APIError(last.Failure)
	case last.Op.Kind == move.KindDropSrc:
		return api.MigrationCompleted, move.APIError(last.Failure)
	case last.Undone() && last.Goal == move.GoalCopy:
		return api.MigrationError, move.APIError(last.Failure)
	case last.Undone():
		return api.MigrationCancelling, move.APIError(last.Failure)
	}
	return After[last.Goal], nil
}

// refusedAtOnce reports whether the ith op, a cancel, was undone before any change, because another
// program had changed the disk, or because the guest may not write to src. Such a cancel may be
// repeated, and the migration may be completed.
func (h *Migration) refusedAtOnce(i int) bool {
	o := &h.Ops[i]
	return (o.failedWith(api.CodeChainChanged) || o.failedWith(api.CodePermissionDenied)) && !plans.CancelAdmitted(&o.Status)
}

// IsOver reports whether this host has finished a migration: a move that the registry leads is
// finished here once dst is copied.
func IsOver(mig *api.Migration) bool {
	return mig.State.Final() || (mig.LedByRegistry() && mig.State == api.MigrationCopied)
}

// OnOverlay reports whether the journal has the guest's newest writes in the overlay.
func (h *Migration) OnOverlay() bool {
	state, _ := h.State()
	return !state.Final() && h.Position() == move.OnOverlay
}

// InPivot reports whether an op with the goal is in its pivot. The definition may then rightly
// name dst (complete) or src (cancel) already.
func (h *Migration) InPivot(goal move.Goal) bool {
	o := h.Running()
	return o != nil && o.Goal == goal && o.Step == "pivot"
}

// MayHaveRunAtEnd reports whether an op is in or after the pivot of a background job: then the
// definition does not prove which image the guest had when it went off.
func (h *Migration) MayHaveRunAtEnd() bool {
	o := h.Running()
	if o == nil || o.Goal == move.GoalCancel || !h.Spec.Background() {
		return h.InPivot(move.GoalCancel)
	}
	return h.InPivot(move.GoalComplete) || o.Step == overlay.NameDstAfterPivotStep
}

// Times returns when src was frozen and when the migration ended, zero if that has not happened.
func (h *Migration) Times() (frozen, ended time.Time) {
	for i := range h.Ops {
		o := &h.Ops[i]
		if at, ok := plans.FrozenAt(&o.Status); ok {
			frozen = at
		}
	}
	if state, _ := h.State(); state.Final() {
		ended = h.Ops[len(h.Ops)-1].FinishedAt
	}
	return frozen, ended
}

// MaxReplans is how many times in a row the manager plans an op again because the host's state
// changed under it (move.Overtaken). A new request starts the count again.
const MaxReplans = 10

// Replans counts how many of a request's last ops have ended because the host's state changed
// under them (move.Overtaken). It skips ops between them that began or adopted a mirror.
func (h *Migration) Replans() int {
	n, last := 0, h.Ops[len(h.Ops)-1].RequestID
	for i := len(h.Ops) - 1; i >= 0; i-- {
		o := &h.Ops[i]
		if o.mirrors() && o.State == op.StateDone && n > 0 {
			continue
		}
		if !o.overtaken() || o.RequestID != last {
			break
		}
		n++
	}
	return n
}
