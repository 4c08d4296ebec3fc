// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// ErrCancelled is the failure of an op that a cancel has stopped. Its detail "state" reports the
// cancel to callers that wait for the op, before the migration's state shows it.
var ErrCancelled = api.Errorf(api.CodeConflict, "the migration is being cancelled").With("state", api.MigrationCancelling)

// Next returns the goal, and the id of the request, of the op that the manager submits by itself.
// Such an op repeats an op that a change of the host's state has ended (move.Overtaken), or
// continues a `volume migrate`, also after an operator has repeated a failed copy, or cancels. ok
// is false if the manager has nothing to submit.
func (h *Migration) Next() (todo move.Goal, requestID string, ok bool) {
	if h.Running() != nil || h.Spec.LedByRegistry() {
		return "", "", false
	}
	last := &h.Ops[len(h.Ops)-1]
	state, _ := h.State()
	switch {
	case state.Final() || state == api.MigrationNeedsOperator:
		return "", "", false
	case last.abandoned():
		return move.GoalCancel, last.RequestID, true
	case h.Spec.Method == move.MethodMirror:
		return h.nextOfMirror(last)
	case last.overtaken():
		return last.Goal, last.RequestID, h.Replans() < MaxReplans
	case last.Goal == move.GoalStart && last.State == op.StateDone && h.notFrozen() != nil:
		return move.GoalCancel, last.RequestID, true
	case !h.Spec.Composite || h.Spec.ExternalCopy || last.State != op.StateDone:
		return "", "", false
	case last.Goal == move.GoalStart:
		return move.GoalCopy, last.RequestID, true
	case last.Goal == move.GoalCopy:
		return move.GoalComplete, last.RequestID, true
	}
	return "", "", false
}

// nextOfMirror is Next for a mirror. After an op that a change of the host's state has ended
// (move.Overtaken) it returns the op of the mirror again, which adopts an existing job. After
// another failure it returns a cancel: src is not frozen, so an open migration has no use.
func (h *Migration) nextOfMirror(last *Op) (todo move.Goal, requestID string, ok bool) {
	switch {
	case last.Goal == move.GoalCancel:
		return move.GoalCancel, last.RequestID, last.overtaken() && h.Replans() < MaxReplans
	case last.Goal == move.GoalStart, last.overtaken() && h.Replans() < MaxReplans,
		last.BeginsMirror() && last.State == op.StateDone:
		return move.GoalCopy, last.RequestID, true
	case last.Goal == move.GoalCopy && last.State == op.StateDone:
		return move.GoalComplete, last.RequestID, true
	}
	return move.GoalCancel, last.RequestID, true
}

// GivenUp returns why the manager itself cancels, or nil for a requested cancel.
func (h *Migration) GivenUp(todo move.Goal) *api.Error {
	if why := cmp.Or(h.Abandoned(), h.notFrozen()); why != nil {
		return why
	}
	last := &h.Ops[len(h.Ops)-1]
	if todo != move.GoalCancel || last.Goal == move.GoalCancel || last.Failure == nil || last.Failure.Message == ErrCancelled.Message {
		return nil
	}
	return move.APIError(last.Failure)
}

// notFrozen returns why a start could not freeze src after its guest was on the overlay, or nil.
func (h *Migration) notFrozen() *api.Error {
	o := h.Find(move.GoalStart)
	if o == nil {
		return nil
	}
	return plans.NotFrozen(&o.Status, &h.Spec)
}

// RequestState returns the state of a request, by the id of the request's first op: the state of
// its last op, or running if another op follows.
func (h *Migration) RequestState(requestID string) (state op.State, failure *api.Error, last *Op) {
	for i := range h.Ops {
		if h.Ops[i].RequestID == requestID {
			last = &h.Ops[i]
		}
	}
	if last == nil {
		return "", nil, nil
	}
	state, failure = last.State, move.APIError(last.Failure)
	if _, req, more := h.Next(); more && req == requestID {
		return op.StateRunning, nil, last
	}
	switch {
	case state == op.StateDone && last.Why != nil:
		return op.StateUndone, last.Why, last // the manager has cancelled the migration
	case state == op.StateDone:
		failure = nil
	}
	return state, failure, last
}

// ShownState returns the State that callers see. A cancel that is about to be submitted counts as
// begun: a caller would otherwise take the failure before the cancel for the migration's end.
func (h *Migration) ShownState() (api.MigrationState, *api.Error) {
	state, failure := h.State()
	if todo, _, more := h.Next(); more && todo == move.GoalCancel {
		state = api.MigrationCancelling
	}
	return state, failure
}
