// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// errCancelled is the failure of an op that a cancel has stopped. The detail reports the cancel to
// callers that wait for the op, before the migration's own state does.
var errCancelled = api.Errorf(api.CodeConflict, "the migration is being cancelled").With("state", api.MigrationCancelling)

// next returns what the manager does now by itself: it plans an overtaken op again, and continues a
// `volume migrate` with the next call, also after a failed copy that an operator repeated. It
// returns the goal and the id of the request; ok is false if there is nothing to do.
func (h *history) next() (todo move.Goal, requestID string, ok bool) {
	if h.running() != nil || h.spec.LedByRegistry() {
		return "", "", false
	}
	last := &h.ops[len(h.ops)-1]
	state, _ := h.state()
	switch {
	case state.Final() || state == api.MigrationNeedsOperator:
		return "", "", false
	case last.abandoned():
		return move.GoalCancel, last.requestID, true
	case h.spec.Method == move.MethodMirror:
		return h.nextOfMirror(last)
	case last.overtaken():
		return last.goal, last.requestID, h.replans() < maxReplans
	case last.goal == move.GoalStart && last.State == op.StateDone && h.notFrozen() != nil:
		return move.GoalCancel, last.requestID, true
	case !h.spec.Composite || h.spec.ExternalCopy || last.State != op.StateDone:
		return "", "", false
	case last.goal == move.GoalStart:
		return move.GoalCopy, last.requestID, true
	case last.goal == move.GoalCopy:
		return move.GoalComplete, last.requestID, true
	}
	return "", "", false
}

// nextOfMirror is next for a mirror, which is not called step by step. After an overtaken op it
// begins with the mirror again, which adopts an existing job. After any other failure the migration
// is given up: src is not frozen, so keeping it open has no use.
func (h *history) nextOfMirror(last *opView) (todo move.Goal, requestID string, ok bool) {
	switch {
	case last.goal == move.GoalCancel:
		return move.GoalCancel, last.requestID, last.overtaken() && h.replans() < maxReplans
	case last.goal == move.GoalStart, last.overtaken() && h.replans() < maxReplans,
		last.Op.Kind == move.KindBeginMirror && last.State == op.StateDone:
		return move.GoalCopy, last.requestID, true
	case last.goal == move.GoalCopy && last.State == op.StateDone:
		return move.GoalComplete, last.requestID, true
	}
	return move.GoalCancel, last.requestID, true
}

// givenUp returns why the manager itself cancels, nil for a requested cancel.
func (h *history) givenUp(todo move.Goal) *api.Error {
	if why := cmp.Or(h.abandoned(), h.notFrozen()); why != nil {
		return why
	}
	last := &h.ops[len(h.ops)-1]
	if todo != move.GoalCancel || last.goal == move.GoalCancel || last.Failure == nil || last.Failure.Message == errCancelled.Message {
		return nil
	}
	return move.APIError(last.Failure)
}

// notFrozen returns why a start failed after its guest was on the overlay, nil if src was seen
// frozen.
func (h *history) notFrozen() *api.Error {
	o := h.find(move.GoalStart)
	if o == nil {
		return nil
	}
	return plans.NotFrozen(&o.Status, &h.spec)
}

// requestState returns the state of a request, by the id of its first op: the state of its last op,
// or running if another op follows.
func (h *history) requestState(requestID string) (state op.State, failure *api.Error, last *opView) {
	for i := range h.ops {
		if h.ops[i].requestID == requestID {
			last = &h.ops[i]
		}
	}
	if last == nil {
		return "", nil, nil
	}
	state, failure = last.State, move.APIError(last.Failure)
	if _, req, more := h.next(); more && req == requestID {
		return op.StateRunning, nil, last
	}
	switch {
	case state == op.StateDone && last.why != nil:
		return op.StateUndone, last.why, last // the migration was given up
	case state == op.StateDone:
		failure = nil
	}
	return state, failure, last
}

// shownState is state for callers: a cancel that the manager is about to submit counts as begun.
// Otherwise a watcher would take the failure before it for the end.
func (h *history) shownState() (api.MigrationState, *api.Error) {
	state, failure := h.state()
	if todo, _, more := h.next(); more && todo == move.GoalCancel {
		state = api.MigrationCancelling
	}
	return state, failure
}
