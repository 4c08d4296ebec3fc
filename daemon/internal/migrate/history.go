// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Journal is where migrations survive: a migration is the group of its ops,
// and everything about it is computed from them.
type Journal interface {
	op.Journal
	// Ops returns the ops of one kind, oldest first; all of them, or those that
	// are not finished.
	Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error)
}

// opView is one op of a migration and where it stands.
type opView struct {
	op.Status
	goal      steps.Goal
	requestID string
	why       *api.Error
}

// undone says whether the op is over without having done what it was for.
func (o *opView) undone() bool { return o.State == op.StateUndone }

// overtaken says whether it was undone because the guest went on or off.
func (o *opView) overtaken() bool {
	return o.undone() && steps.Overtaken(o.Failure)
}

// abandoned says whether it ended because the registry had ended the migration.
func (o *opView) abandoned() bool {
	is, _ := steps.Abandoned(o.Failure)
	return o.undone() && is
}

// abandonedKept says whether the instance still had src then.
func (o *opView) abandonedKept() bool {
	_, kept := steps.Abandoned(o.Failure)
	return o.undone() && kept
}

// abandoned returns why nothing is done for the migration any more, nil if the
// registry has not ended it.
func (h *history) abandoned() *api.Error {
	for i := range h.ops {
		if h.ops[i].abandoned() {
			return steps.APIError(h.ops[i].Failure)
		}
	}
	return nil
}

// keptSrc says whether what the guest wrote since the start of a migration that
// the registry has ended still belongs into src, by the newest word.
func (h *history) keptSrc() bool {
	for _, o := range slices.Backward(h.ops) {
		if o.abandoned() {
			return o.abandonedKept()
		}
	}
	return false
}

func (o *opView) failedWith(code api.Code) bool {
	return o.undone() && o.Failure != nil && o.Failure.Code == string(code)
}

// history is a migration: its spec and its ops, oldest first. All its methods
// are pure.
type history struct {
	spec steps.Spec
	ops  []opView
}

// loadHistory reads a migration from the journal. An *api.Error with not_found
// if there is none.
func (m *Manager) loadHistory(ctx context.Context, id string) (*history, error) {
	ops, err := m.journal.Group(ctx, id)
	if err != nil {
		return nil, steps.JournalError(err)
	}
	if len(ops) == 0 {
		return nil, api.Errorf(api.CodeNotFound, "no migration %s", id)
	}
	h := &history{}
	for i, o := range ops {
		var in steps.Input
		if err := json.Unmarshal(o.Input, &in); err != nil {
			return nil, fmt.Errorf("decode the input of op %s: %w", o.ID, err)
		}
		if i == 0 {
			h.spec = in.Spec
		}
		st, err := m.runner.Status(ctx, o.ID)
		if err != nil {
			return nil, steps.JournalError(err)
		}
		h.ops = append(h.ops, opView{Status: st, goal: steps.GoalOf(o.Kind), requestID: in.RequestID, why: in.Why})
	}
	return h, nil
}

// state is the state of the migration and, where its last op did not do what
// was asked, why.
func (h *history) state() (api.MigrationState, *api.Error) {
	if h.spec.Method == steps.MethodSave {
		return h.stateOfSaved()
	}
	state, failure := api.MigrationStarting, (*api.Error)(nil)
	for i := range h.ops {
		o := &h.ops[i]
		switch o.State {
		case op.StateNeedsOperator:
			return api.MigrationNeedsOperator, steps.APIError(o.Failure)
		case op.StateRunning, op.StateUndoing:
			state, failure = during[o.goal], steps.APIError(o.Failure)
		case op.StateDone:
			state, failure = after[o.goal], o.why
			if o.Op.Kind == steps.KindRelease {
				state = api.MigrationError
			}
			if state.Final() {
				return state, failure
			}
		case op.StateUndone:
			if !o.overtaken() || h.replans() >= maxReplans {
				failure = steps.APIError(o.Failure)
			}
			state = h.stateUndone(o, i, state)
			if state.Final() {
				return state, failure
			}
		}
	}
	return state, failure
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

var (
	during = map[steps.Goal]api.MigrationState{
		steps.GoalStart: api.MigrationStarting, steps.GoalCopy: api.MigrationCopying,
		steps.GoalComplete: api.MigrationCompleting, steps.GoalCancel: api.MigrationCancelling,
	}
	after = map[steps.Goal]api.MigrationState{
		steps.GoalStart: api.MigrationStarted, steps.GoalCopy: api.MigrationCopied,
		steps.GoalComplete: api.MigrationCompleted, steps.GoalCancel: api.MigrationCancelled,
	}
)

// stateUndone is the state that an undone op leaves the migration in. A cancel
// that was accepted never flips back: part of the overlay may be in src.
func (h *history) stateUndone(o *opView, i int, before api.MigrationState) api.MigrationState {
	switch {
	case o.abandoned() && h.spec.Attached():
		return api.MigrationCancelling // it is taken back or let go next
	case o.goal == steps.GoalStart, o.abandoned():
		return api.MigrationError
	case o.goal == steps.GoalCancel && h.refusedAtOnce(i):
		return before
	case o.goal == steps.GoalCancel:
		return api.MigrationCancelling
	case o.goal == steps.GoalComplete && h.copiedBefore(i) && h.spec.Method != steps.MethodMirror:
		return api.MigrationCopied
	}
	return api.MigrationStarted
}

// refusedAtOnce says whether the ith op, a cancel, was undone before it changed
// anything: what was changed from outside is in its way, and it may be asked for again.
func (h *history) refusedAtOnce(i int) bool {
	o := &h.ops[i]
	return o.failedWith(api.CodeChainChanged) && !steps.CancelAdmitted(&o.Status)
}

// copiedBefore says whether the built-in copier finished in one of the first i
// ops.
func (h *history) copiedBefore(i int) bool {
	return slices.ContainsFunc(h.ops[:i], func(o opView) bool {
		return o.goal == steps.GoalCopy && o.State == op.StateDone
	})
}

// running returns the op that is not final yet, the newest if there are
// several; nil if none.
func (h *history) running() *opView {
	for i := len(h.ops) - 1; i >= 0; i-- {
		if !h.ops[i].State.Final() {
			return &h.ops[i]
		}
	}
	return nil
}

// find returns the newest op for a goal, nil if there is none.
func (h *history) find(g steps.Goal) *opView {
	for i := len(h.ops) - 1; i >= 0; i-- {
		if h.ops[i].goal == g {
			return &h.ops[i]
		}
	}
	return nil
}

// op returns the op with this id, which is one of the migration's.
func (h *history) op(id string) *opView {
	return &h.ops[slices.IndexFunc(h.ops, func(o opView) bool { return o.Op.ID == id })]
}

// maxReplans bounds how often in a row an op is planned anew because the world
// overtook it: more often is no accident. Calling again starts over.
const maxReplans = 10

// next is what the manager does by itself now: plan anew what the world
// overtook, and bring a `volume migrate` from one call to the next. It returns
// the goal and the request that it serves; ok is false if there is nothing.
func (h *history) next() (todo steps.Goal, request string, ok bool) {
	if h.running() != nil || h.spec.Method == steps.MethodSave {
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
	case !h.spec.Composite || h.spec.ExternalCopy || last.State != op.StateDone || last.requestID != h.ops[0].requestID:
		return "", "", false
	case last.goal == steps.GoalStart:
		return steps.GoalCopy, last.requestID, true
	case last.goal == steps.GoalCopy:
		return steps.GoalComplete, last.requestID, true
	}
	return "", "", false
}

// nextOfMirror is next for a mirror, which nobody calls step by step. What the
// world overtook begins with the mirror again: the job may be gone, and if it is
// not it is taken up. What failed otherwise is given up: nothing is frozen, so
// there is nothing to hold on to.
func (h *history) nextOfMirror(last *opView) (todo steps.Goal, request string, ok bool) {
	switch {
	case last.goal == steps.GoalCancel:
		return steps.GoalCancel, last.requestID, last.overtaken() && h.replans() < maxReplans
	case last.goal == steps.GoalStart, last.overtaken() && h.replans() < maxReplans:
		return steps.GoalCopy, last.requestID, true
	case last.goal == steps.GoalCopy && last.State == op.StateDone:
		return steps.GoalComplete, last.requestID, true
	}
	return steps.GoalCancel, last.requestID, true
}

// givenUp is why the manager cancels by itself, nil if somebody else asked for it.
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
	wrong := steps.NotFrozen(&o.Status)
	if wrong == "" {
		return nil
	}
	return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s while its guest runs: %s", h.spec.VolumeName, wrong)
}

// replans counts how many of the last ops in a row, of one request, the world
// overtook. A mirror that was taken up again in between is none.
func (h *history) replans() int {
	n, last := 0, h.ops[len(h.ops)-1].requestID
	for i := len(h.ops) - 1; i >= 0; i-- {
		o := &h.ops[i]
		if o.Op.Kind == steps.KindMirror && o.State == op.StateDone && n > 0 {
			continue
		}
		if !o.overtaken() || o.requestID != last {
			break
		}
		n++
	}
	return n
}

// requestState is how a request stands that a caller knows by the id of its
// first op: its state is that of the last op that serves it, unless there is
// another to come.
func (h *history) requestState(request string) (state op.State, failure *api.Error, last *opView) {
	for i := range h.ops {
		if h.ops[i].requestID == request {
			last = &h.ops[i]
		}
	}
	if last == nil {
		return "", nil, nil
	}
	state, failure = last.State, steps.APIError(last.Failure)
	if _, req, more := h.next(); more && req == request {
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

// times returns when src was frozen and when the migration ended; zero if not.
func (h *history) times() (frozen, ended time.Time) {
	for i := range h.ops {
		o := &h.ops[i]
		if at, ok := steps.FrozenAt(&o.Status); ok {
			frozen = at
		}
	}
	if state, _ := h.state(); state.Final() {
		ended = h.ops[len(h.ops)-1].FinishedAt
	}
	return frozen, ended
}
