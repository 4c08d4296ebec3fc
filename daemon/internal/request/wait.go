// SPDX-License-Identifier: Apache-2.0

package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/internal/shell"
)

const grantPoll = 5 * time.Millisecond

// Granted waits until the op is past the steps in first, which only check whether the op may
// begin, so that the request is answered with their refusal. If the op waits for something,
// Granted waits a short time. Then it withdraws the op if the op still waits for its turn after a
// long op. It returns an error if the op was undone.
func (a *Admission) Granted(ctx context.Context, opID string, first ...string) (op.Status, error) {
	st, err := a.granted(ctx, opID, first)
	if err == nil && st.State == op.StateUndone {
		return st, APIError(st.Failure)
	}
	return st, err
}

func (a *Admission) granted(ctx context.Context, opID string, first []string) (op.Status, error) {
	var st op.Status
	past, err := retry.Poll(ctx, grantPoll, a.timeout(), func() (_ bool, err error) {
		if st, err = a.Runner.Status(ctx, opID); err != nil {
			return false, JournalError(err)
		}
		// An op has no step before its first step and after that step's undo.
		return st.State != op.StateRunning || (st.Step != "" && !slices.Contains(first, st.Step)), nil
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return st, fmt.Errorf("wait for op %s: %w", opID, context.Cause(ctx))
	case err != nil:
		return st, err
	case past:
		return a.ended(ctx, st)
	case st.Waiting == WaitTurn && !a.behindOurs(st):
		return a.takeBackTurn(ctx, st)
	}
	return st, nil
}

// ended waits for the end of an op that is being undone, so that the op does not count as granted.
func (a *Admission) ended(ctx context.Context, st op.Status) (op.Status, error) {
	if st.State != op.StateUndoing {
		return st, nil
	}
	return a.Wait(ctx, st.Op.ID)
}

func (a *Admission) behindOurs(mine op.Status) bool {
	for _, st := range a.Runner.Active() {
		if st.Op.ID != mine.Op.ID && share(st.Op.Keys, mine.Op.Keys) && !a.ours(st.Op.Kind) {
			return false
		}
	}
	return true
}

// takeBackTurn withdraws an op that has changed nothing and waits for its turn.
func (a *Admission) takeBackTurn(ctx context.Context, st op.Status) (op.Status, error) {
	busy := api.Errorf(api.CodeInstanceBusy, "another operation works on the instance or the volume; `volferryctl migration list` shows migrations; try again when it is over")
	if parked := a.Parked(st.Op.Keys); parked != nil {
		busy = waitsBehind(parked)
	}
	if err := a.Runner.Interrupt(st.Op.ID, busy); err != nil {
		return st, nil //nolint:nilerr // its turn has come meanwhile
	}
	return a.Wait(ctx, st.Op.ID)
}

// Parked returns an op of any manager that waits for the operator and has one of these keys, or
// nil. Until that op ends, no other op with the key begins.
func (a *Admission) Parked(keys []string) *op.Status {
	for _, st := range a.Runner.Active() {
		if st.State == op.StateNeedsOperator && share(st.Op.Keys, keys) {
			return &st
		}
	}
	return nil
}

func waitsBehind(parked *op.Status) *api.Error {
	return api.Errorf(api.CodeNeedsOperator, "%s; nothing was changed", StandsInTheWay(parked)).With("op_id", parked.Op.ID)
}

// StandsInTheWay describes an op that waits for the operator and blocks other ops.
func StandsInTheWay(parked *op.Status) string {
	return fmt.Sprintf("operation %s (%s) has to end first, and an operator has to look at it: %s; `%s` says what to do",
		parked.Op.ID, parked.Op.Kind, parked.Failure.Message, shell.Line("volferryctl", "op", "show", parked.Op.ID))
}

// RefuseParked withdraws an op that has changed nothing and waits for its turn after an op that
// waits for the operator. It reports whether it did.
func (a *Admission) RefuseParked(st op.Status) bool {
	if st.Waiting != WaitTurn || st.State != op.StateRunning {
		return false
	}
	parked := a.Parked(st.Op.Keys)
	return parked != nil && a.Runner.Interrupt(st.Op.ID, waitsBehind(parked)) == nil
}

// Wait returns the status of an op at its end or after Timeout.
func (a *Admission) Wait(ctx context.Context, opID string) (op.Status, error) {
	bounded, cancel := context.WithTimeout(ctx, a.timeout())
	defer cancel()
	now, err := a.Runner.Wait(bounded, opID)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return now, nil
	}
	return now, err
}

// End waits for the end of an op and returns its status. It returns an error if the op was undone,
// needs the operator, or waits for a system that does not answer; such a wait ends by itself.
// doing begins the text of the last two errors.
func (a *Admission) End(ctx context.Context, opID, doing string) (op.Status, error) {
	for {
		st, err := a.Wait(ctx, opID)
		switch {
		case err != nil:
			return st, err
		case st.State == op.StateDone:
			return st, nil
		case st.State == op.StateUndone:
			return st, APIError(st.Failure)
		case st.State == op.StateNeedsOperator:
			return st, api.Errorf(api.CodeNeedsOperator, "%s, but an operator has to look at it: %s", doing, st.Failure.Message).
				With("op_id", opID).With("cause", st.Failure.Code)
		}
		if a.RefuseParked(st) {
			continue
		}
		if err := a.stuck(st, doing); err != nil {
			return st, err
		}
	}
}

const processesAway = "`systemctl status volferryd-processes.socket volferryd-processes.service` and `journalctl -u volferryd.service` say why"

func (a *Admission) stuck(st op.Status, doing string) error {
	code, what := cmp.Or(a.Busy, api.CodeInstanceBusy), ""
	if a.Waits != nil {
		what = a.Waits(st)
	}
	switch {
	case what != "":
	case st.Waiting == "":
		return nil
	case st.Waiting == WaitRegistry:
		code, what = api.CodeRegistryUnavailable, "the registry does not answer"
	case st.Waiting == WaitHypervisor:
		code, what = api.CodeHypervisorUnavailable, "libvirt does not answer"
	case st.Waiting == WaitProcesses:
		code, what = api.CodeHypervisorUnavailable, "volferryd-processes does not say what the processes of guests have open ("+processesAway+")"
	case st.Waiting == WaitStorage:
		code, what = api.CodeIOError, "the storage does not answer"
	case st.Waiting == WaitWake:
		code, what = api.CodeInstanceBusy, "the guest is asleep or has crashed, and is switched once it runs again or is off (virsh dompmwakeup; reset, then resume; or destroy)"
	case st.Waiting == WaitBackup:
		code, what = api.CodeInstanceBusy, "somebody has a backup made of the guest's disk, beside which libvirt begins no other job; wait for its end, or end it (virsh domjobabort)"
	case st.Waiting == WaitResume:
		what = "libvirt does not resume the guest, which is paused; `volferryctl status` says why"
	default:
		what = "another operation has to end first"
	}
	return api.Errorf(code, "%s, but %s; it goes on by itself (op %s)", doing, what, st.Op.ID).With("op_id", st.Op.ID)
}
