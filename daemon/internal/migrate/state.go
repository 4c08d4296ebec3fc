// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"maps"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// state returns the state of the migration and, if its last op failed, the reason.
func (h *history) state() (api.MigrationState, *api.Error) {
	if h.spec.LedByRegistry() {
		return h.stateOfSaved()
	}
	state, failure := api.MigrationStarting, (*api.Error)(nil)
	for i := range h.ops {
		o := &h.ops[i]
		switch o.State {
		case op.StateNeedsOperator:
			return api.MigrationNeedsOperator, h.standstill(o)
		case op.StateRunning, op.StateUndoing:
			state, failure = during[o.goal], move.APIError(o.Failure)
		case op.StateDone:
			state, failure = after[o.goal], o.why
			switch {
			case o.abandoned() && h.spec.Attached():
				state = api.MigrationCancelling // it is taken back or released next
			case o.abandoned(), o.Op.Kind == move.KindRelease:
				state = api.MigrationError
			case o.Op.Kind == move.KindBeginMirror:
				state = api.MigrationStarted
			}
			if state.Final() {
				return state, failure
			}
		case op.StateUndone:
			if !o.overtaken() || h.replans() >= maxReplans {
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

// standstill returns the error of an op that waits for the operator, with the command that
// continues the op after the commands that it names.
func (h *history) standstill(o *opView) *api.Error {
	why := move.APIError(o.Failure)
	cure, known := why.Details[api.DetailCure].(string)
	if !known {
		return why
	}
	again := *why
	again.Details = maps.Clone(why.Details)
	return again.With(api.DetailCure, cure+api.CureSeparator+h.again(o.goal))
}

// again returns the command that continues an op that waits for the operator. A cancel takes a
// start back, or completes it.
func (h *history) again(goal move.Goal) string {
	s := &h.spec
	mig := api.Migration{ID: s.MigrationID, DstAttachmentID: s.DstAttachmentID}
	switch goal {
	case move.GoalComplete:
		return mig.CompleteCommand()
	case move.GoalCopy:
		return mig.CopyCommand()
	default:
		return api.ShellLine("volferryctl", "migration", "cancel", mig.Ref())
	}
}

var (
	during = map[move.Goal]api.MigrationState{
		move.GoalStart: api.MigrationStarting, move.GoalCopy: api.MigrationCopying,
		move.GoalComplete: api.MigrationCompleting, move.GoalCancel: api.MigrationCancelling,
	}
	after = map[move.Goal]api.MigrationState{
		move.GoalStart: api.MigrationStarted, move.GoalCopy: api.MigrationCopied,
		move.GoalComplete: api.MigrationCompleted, move.GoalCancel: api.MigrationCancelled,
	}
)

// stateUndone returns the state of a migration after an undone op. The state after an admitted
// cancel never goes back: src may have a part of the overlay.
func (h *history) stateUndone(o *opView, i int, before api.MigrationState) api.MigrationState {
	switch {
	case o.abandoned() && h.spec.Attached():
		return api.MigrationCancelling // it is taken back or released next
	case o.goal == move.GoalStart, o.abandoned():
		return api.MigrationError
	case o.goal == move.GoalCancel && h.refusedAtOnce(i):
		return before
	case o.goal == move.GoalCancel:
		return api.MigrationCancelling
	case o.goal == move.GoalComplete && h.copiedBefore(i) && h.spec.Method != move.MethodMirror:
		return api.MigrationCopied
	}
	return api.MigrationStarted
}

func (h *history) stateOfSaved() (api.MigrationState, *api.Error) {
	last := &h.ops[len(h.ops)-1]
	switch {
	case last.State == op.StateNeedsOperator:
		return api.MigrationNeedsOperator, h.standstill(last)
	case !last.State.Final():
		return during[last.goal], move.APIError(last.Failure)
	case last.Op.Kind == move.KindDropSrc:
		return api.MigrationCompleted, move.APIError(last.Failure)
	case last.undone() && last.goal == move.GoalCopy:
		return api.MigrationError, move.APIError(last.Failure)
	case last.undone():
		return api.MigrationCancelling, move.APIError(last.Failure)
	}
	return after[last.goal], nil
}

// refusedAtOnce reports whether the ith op, a cancel, was undone before it changed anything,
// because another program has changed the disk: the cancel may be repeated.
func (h *history) refusedAtOnce(i int) bool {
	o := &h.ops[i]
	return o.failedWith(api.CodeChainChanged) && !plans.CancelAdmitted(&o.Status)
}

// isOver reports whether this host has finished a migration. A move that the registry leads is
// finished here with the copy.
func isOver(mig *api.Migration) bool {
	return mig.State.Final() || (mig.LedByRegistry() && mig.State == api.MigrationCopied)
}

// onOverlay reports whether the journal has the guest's newest writes in the overlay.
func (h *history) onOverlay() bool {
	state, _ := h.state()
	return !state.Final() && h.position() == move.OnOverlay
}

// inPivot reports whether an op is in its pivot. In a complete the definition already names dst,
// which is right on either side of the pivot; in a cancel libvirt names src after QEMU's pivot.
func (h *history) inPivot(goal move.Goal) bool {
	o := h.running()
	return o != nil && o.goal == goal && o.Step == "pivot"
}

// mayHaveRunAtEnd reports whether an op is in or after the pivot of a background job: the
// definition does not show the side where the guest went off.
func (h *history) mayHaveRunAtEnd() bool {
	o := h.running()
	if o == nil || o.goal == move.GoalCancel || !h.spec.Background() {
		return h.inPivot(move.GoalCancel)
	}
	return h.inPivot(move.GoalComplete) || o.goal == move.GoalComplete && o.Step == "name_dst"
}

// times returns when src was frozen and when the migration ended; zero if not.
func (h *history) times() (frozen, ended time.Time) {
	for i := range h.ops {
		o := &h.ops[i]
		if at, ok := plans.FrozenAt(&o.Status); ok {
			frozen = at
		}
	}
	if state, _ := h.state(); state.Final() {
		ended = h.ops[len(h.ops)-1].FinishedAt
	}
	return frozen, ended
}

// maxReplans bounds how often in a row an op is planned again after it was overtaken: more often is
// no coincidence. Another call starts over.
const maxReplans = 10

// replans counts the last ops of one request that were overtaken in a row, without mirrors that
// were begun or adopted in between.
func (h *history) replans() int {
	n, last := 0, h.ops[len(h.ops)-1].requestID
	for i := len(h.ops) - 1; i >= 0; i-- {
		o := &h.ops[i]
		if (o.Op.Kind == move.KindMirror || o.Op.Kind == move.KindBeginMirror) && o.State == op.StateDone && n > 0 {
			continue
		}
		if !o.overtaken() || o.requestID != last {
			break
		}
		n++
	}
	return n
}
