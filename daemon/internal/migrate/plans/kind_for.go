// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

// KindFor returns the op kind for a goal, by whether the instance runs now.
func (e *Env) KindFor(ctx context.Context, s *move.Spec, what move.Goal) (string, error) {
	switch {
	case s.Method == move.MethodMirror:
		if what == move.GoalComplete { // a cancel leaves the guest on src
			// If the guest cannot be looked at, the op finds that.
			if dom, err := e.hv.Domain(ctx, s.InstanceID); err == nil {
				if err := e.Look.CheckSwitchable(ctx, s, dom.State); err != nil {
					return "", err
				}
			}
		}
		return map[move.Goal]string{move.GoalStart: move.KindStartMirror, move.GoalCopy: move.KindMirror, move.GoalComplete: move.KindCompleteMirror, move.GoalCancel: move.KindCancelMirror}[what], nil
	case what == move.GoalCopy:
		return move.KindCopy, nil
	case s.Method == move.MethodOffline:
		return map[move.Goal]string{move.GoalStart: move.KindStartOffline, move.GoalComplete: move.KindCompleteOffline, move.GoalCancel: move.KindCancelOffline}[what], nil
	}
	dom, err := e.hv.Domain(ctx, s.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		return "", move.Undefined(s)
	}
	if err != nil {
		return "", move.CannotLookAt(s, err)
	}
	if dom.State.Active() {
		hold := false
		if what != move.GoalStart { // a start begins no job
			if err = e.Look.CheckSwitchable(ctx, s, dom.State); err != nil {
				return "", err
			}
			if hold, err = e.Look.MustHold(ctx, s); err != nil {
				return "", move.CannotLookAt(s, err)
			}
		}
		if what == move.GoalComplete && !hold { // the held plan ends a job, and begins another one
			if hold, err = e.BlockJob.EndNotStored(ctx, s); err != nil {
				return "", err
			}
		}
		switch {
		case what == move.GoalComplete && s.Background() && hold:
			return move.KindCompleteBackgroundHeld, nil
		case what == move.GoalComplete && s.Background():
			return move.KindCompleteBackground, nil
		case hold:
			return map[move.Goal]string{move.GoalComplete: move.KindCompleteLiveHeld, move.GoalCancel: move.KindCancelLiveHeld}[what], nil
		}
		return map[move.Goal]string{move.GoalStart: move.KindStart, move.GoalComplete: move.KindCompleteLive, move.GoalCancel: move.KindCancelLive}[what], nil
	}
	return map[move.Goal]string{move.GoalStart: move.KindStart, move.GoalComplete: move.KindCompleteCold, move.GoalCancel: move.KindCancelCold}[what], nil
}
