// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"

	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// errCancelled is the failure of an op that a cancel has stopped. The detail tells those who
// waited for the op, before the migration's own state does.
var errCancelled = api.Errorf(api.CodeConflict, "the migration is being cancelled").With("state", api.MigrationCancelling)

// next is what the manager does by itself now: it plans anew an op that the world has
// overtaken, and brings a `volume migrate` from one call to the next, also after a copy that had
// failed and that somebody has asked for again. It returns the goal and the id of the request
// that it serves; ok is false if there is nothing to do.
func (h *history) next() (todo steps.Goal, requestID string, ok bool) {
	if h.running() != nil || h.spec.LedByRegistry() {
		return "", "", false
	}
	last := &h.ops[len(h.ops)-1]
	state, _ := h.state()
	switch {
	case state.Final() || state == api.MigrationNeedsOperator:
		return "", "", false
	case last.abandoned():
		return steps.GoalCancel, last.requestID, true
	case h.spec.Method == steps.MethodMirror:
		return h.nextOfMirror(last)
	case last.overtaken():
		return last.goal, last.requestID, h.replans() < maxReplans
	case last.goal == steps.GoalStart && last.State == op.StateDone && h.notFrozen() != nil:
		return steps.GoalCancel, last.requestID, true
	case !h.spec.Composite || h.spec.ExternalCopy || last.State != op.StateDone:
		return "", "", false
	case last.goal == steps.GoalStart:
		return steps.GoalCopy, last.requestID, true
	case last.goal == steps.GoalCopy:
		return steps.GoalComplete, last.requestID, true
	}
	return "", "", false
}

// nextOfMirror is next for a mirror, which nobody calls step by step. After an op that the
// world has overtaken it begins with the mirror again: the job may be gone, and a job that is
// there is taken up. After any other failure the migration is given up: src is not frozen, so
// nothing is gained by keeping it open.
func (h *history) nextOfMirror(last *opView) (todo steps.Goal, requestID string, ok bool) {
	switch {
	case last.goal == steps.GoalCancel:
		return steps.GoalCancel, last.requestID, last.overtaken() && h.replans() < maxReplans
	case last.goal == steps.GoalStart, last.overtaken() && h.replans() < maxReplans,
		last.Op.Kind == steps.KindBeginMirror && last.State == op.StateDone:
		return steps.GoalCopy, last.requestID, true
	case last.goal == steps.GoalCopy && last.State == op.StateDone:
		return steps.GoalComplete, last.requestID, true
	}
	return steps.GoalCancel, last.requestID, true
}

// givenUp is why the manager cancels by itself, nil if somebody has asked for the cancel.
func (h *history) givenUp(todo steps.Goal) *api.Error {
	if why := cmp.Or(h.abandoned(), h.notFrozen()); why != nil {
		return why
	}
	last := &h.ops[len(h.ops)-1]
	if todo != steps.GoalCancel || last.goal == steps.GoalCancel || last.Failure == nil || last.Failure.Message == errCancelled.Message {
		return nil
	}
	return steps.APIError(last.Failure)
}

// notFrozen is why a start came to nothing after its guest was on the overlay, nil if
// src was seen to be frozen.
func (h *history) notFrozen() *api.Error {
	o := h.find(steps.GoalStart)
	if o == nil {
		return nil
	}
	return steps.NotFrozen(&o.Status, &h.spec)
}

// requestState is how a request stands. The caller knows it by the id of its first op; its
// state is the state of the last op that serves it, unless another op is to come.
func (h *history) requestState(requestID string) (state op.State, failure *api.Error, last *opView) {
	for i := range h.ops {
		if h.ops[i].requestID == requestID {
			last = &h.ops[i]
		}
	}
	if last == nil {
		return "", nil, nil
	}
	state, failure = last.State, steps.APIError(last.Failure)
	if _, req, more := h.next(); more && req == requestID {
		return op.StateRunning, nil, last
	}
	switch {
	case state == op.StateDone && last.why != nil:
		return op.StateUndone, last.why, last // it was given up
	case state == op.StateDone:
		failure = nil
	}
	return state, failure, last
}

// shownState is state as callers see it: a cancel that the manager is about to begin by
// itself has begun. Whoever watches would take the failure before it for the end.
func (h *history) shownState() (api.MigrationState, *api.Error) {
	state, failure := h.state()
	if todo, _, more := h.next(); more && todo == steps.GoalCancel {
		state = api.MigrationCancelling
	}
	return state, failure
}
