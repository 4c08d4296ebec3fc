// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"
	"maps"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// A row has the steps of the loop in one phase of a move. In a live move the hosts also get the
// calls of Pause.LiveNext.
type row struct {
	// stop returns why the move must return to src, nil if it need not. Nil: nothing stops it.
	stop func(*workflow.Pause) *api.Error
	// part is the call about each instance, nil if there is none.
	part *part
	// late is called while an instance has not completed the part. If late is nil, the loop waits
	// for it.
	late func(*Loop, context.Context, *workflow.Pause) error
	// barrier reports whether the results of the calls to hosts allow next; nil always does.
	barrier func(workflow.Pause) bool
	// next, after the barrier and once all instances have completed the part, begins the next
	// phase, at once or at the end of a call.
	next func(*Loop, context.Context, *workflow.Pause) error
}

// pauseAll has the phases of a move that saves all guests for the copy.
var pauseAll = map[workflow.PausePhase]row{
	workflow.PauseChecking:   {stop: fenced, part: &checkPart, next: (*Loop).checkCopy},
	workflow.PauseSuspending: {stop: fenced, part: &suspendPart, late: (*Loop).lateToSuspend, next: (*Loop).beginSaving},
	workflow.PauseSaving:     {stop: fenced, part: &savePart, next: (*Loop).beginCopying},
	workflow.PauseCopying:    {stop: fenced, next: (*Loop).copy},
	workflow.PauseRestoring:  {next: (*Loop).end},
	workflow.PauseCancelling: {next: (*Loop).end},
	workflow.PauseDone:       {next: (*Loop).wakeAll},
}

// live has the phases of a move while all guests write: some rows of pauseAll, and the rounds of
// copying before the guests are suspended.
var live = with(pauseAll, map[workflow.PausePhase]row{
	workflow.PauseChecking: {stop: fenced, barrier: workflow.Pause.LiveReady, next: (*Loop).beginMaking},
	workflow.PauseMaking:   {stop: fenced, barrier: workflow.Pause.LiveReady, next: (*Loop).made},
	workflow.PauseTracking: {stop: fenced, barrier: workflow.Pause.LiveReady, next: to(workflow.PauseCopying)},
	workflow.PauseCopying:  {stop: fenced, barrier: workflow.Pause.LiveReady, next: (*Loop).afterRound},
	workflow.PauseSwapping: {stop: fenced, barrier: workflow.Pause.LiveReady, next: to(workflow.PauseCopying)},
	workflow.PauseLast:     {stop: tooLong, barrier: workflow.Pause.LiveReady, next: to(workflow.PauseSaving)},
	workflow.PauseSaving:   {stop: tooLong, part: &savePart, barrier: workflow.Pause.LiveReady, next: (*Loop).flipSaved},
	workflow.PauseAgain:    {stop: notResumed, next: (*Loop).trackAgain},
})

func with(rows, more map[workflow.PausePhase]row) map[workflow.PausePhase]row {
	all := maps.Clone(rows)
	maps.Copy(all, more)
	return all
}

func (l *Loop) advance(ctx context.Context, p *workflow.Pause) error {
	rows := pauseAll
	if p.Live != nil {
		rows = live
	}
	r, known := rows[p.Phase]
	if !known {
		return api.Errorf(api.CodeInternal, "migration %s is in phase %s, which a move of method %s does not have", p.Migration.ID, p.Phase, p.Migration.Method)
	}
	if r.stop != nil {
		if why := r.stop(p); why != nil {
			return l.cancel(ctx, p, why)
		}
	}
	if p.Live != nil && p.Phase != workflow.PauseDone {
		l.askHosts(ctx, p)
	}
	if r.part != nil && l.bring(ctx, p, r.part) {
		if r.late == nil {
			return nil
		}
		return r.late(l, ctx, p)
	}
	if r.barrier != nil && !r.barrier(*p) {
		return nil
	}
	return r.next(l, ctx, p)
}

// suspendWithin is how long suspended guests wait for the last guest to be suspended. No guest is
// saved yet, so all can be resumed without loss.
const suspendWithin = 10 * time.Second

// lateToSuspend gives up after suspendWithin: a live move begins again, any other is cancelled.
func (l *Loop) lateToSuspend(ctx context.Context, p *workflow.Pause) error {
	if time.Since(p.StoppedAt) < suspendWithin {
		return nil
	}
	why := api.Errorf(api.CodeInstanceBusy, "not all guests of volume %s stood still within %s; the others were let go on", p.Migration.VolumeName, suspendWithin)
	if p.Live != nil {
		_, err := l.cfg.LiveMoves.Again(ctx, call(p), p.Migration.ID, p.Phase, why)
		return err
	}
	return l.cancel(ctx, p, why)
}

func (l *Loop) beginSaving(ctx context.Context, p *workflow.Pause) error {
	_, err := l.cfg.Phases.Save(ctx, call(p), p.Migration.ID)
	return err
}

func (l *Loop) beginCopying(ctx context.Context, p *workflow.Pause) error {
	_, err := l.cfg.Phases.Copy(ctx, call(p), p.Migration.ID)
	return err
}
