// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"errors"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/migrate/pause"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/op"
)

// Way is the state of an instance and a migration when an op is planned. Way and goal decide which
// steps the op has (Plan).
type Way struct {
	Method string
	// Running: the guest runs. Only method overlay sets it.
	Running bool
	// Held: the block job has to begin with the guest suspended.
	Held bool
	// Background: the job into dst writes only in the background (Spec.Background).
	Background bool
	// OnlyBegins: the op only begins a mirror, with the guest suspended. Another op continues it.
	OnlyBegins bool
	// Committed: another program has committed the overlay into src, and the guest runs there.
	Committed bool
	// Ended: the registry has ended the migration, and src still belongs to the instance.
	Ended bool
	// Lost: the registry has ended the migration, and the volume is not at src.
	Lost bool
}

// WayFor looks at the instance of a migration for an op that is about to be planned.
func (e *Env) WayFor(ctx context.Context, s *move.Spec, goal move.Goal) (Way, error) {
	w := Way{Method: s.Method}
	if s.Method == move.MethodMirror {
		if goal == move.GoalComplete { // a cancel leaves the guest on src
			// If the guest cannot be looked at, the op finds that.
			if dom, err := e.hv.Domain(ctx, s.InstanceID); err == nil {
				return w, e.Look.CheckSwitchable(ctx, s, dom.State)
			}
		}
		return w, nil
	}
	if goal == move.GoalCopy || s.Method == move.MethodOffline {
		return w, nil
	}
	dom, err := e.hv.Domain(ctx, s.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		return w, move.Undefined(s)
	}
	if err != nil {
		return w, move.CannotLookAt(s, err)
	}
	w.Running = dom.State.Active()
	if !w.Running || goal == move.GoalStart { // a start begins no job
		return w, nil
	}
	if err := e.Look.CheckSwitchable(ctx, s, dom.State); err != nil {
		return w, err
	}
	if w.Held, err = e.Look.MustHold(ctx, s); err != nil {
		return w, move.CannotLookAt(s, err)
	}
	if goal == move.GoalComplete {
		w.Background = s.Background()
		if !w.Held { // the held steps would end the job and begin another
			w.Held, err = e.BlockJob.EndNotStored(ctx, s)
		}
	}
	return w, err
}

// Plan returns the kind, the steps and the commit point of the op that reaches a goal.
func (e *Env) Plan(goal move.Goal, w Way) op.Op {
	kind, steps, commit := move.KindFor(goal), []string(nil), ""
	switch goal {
	case move.GoalStart:
		steps, commit = w.start()
	case move.GoalCopy:
		steps = w.copy()
	case move.GoalComplete:
		steps, commit = w.complete()
	case move.GoalCancel:
		if w.Ended || w.Lost {
			kind = move.KindRollback
			steps, commit = w.rollback()
		} else {
			steps, commit = w.cancel()
		}
	}
	plan := e.planOf(kind)
	return op.Op{Kind: kind, Steps: plan.Choose(steps...), Commit: commit}
}

var (
	heldSteps  = []string{pause.MayBeginStep, pause.ToBegin.Begin, pause.BeginStep, pause.ToBegin.End}
	abortSteps = []string{move.ToAbort.Begin, pause.AbortStep, move.ToAbort.End}
	// These steps end a job that writes at once. The definition names dst first, since dst has
	// every acknowledged write.
	switchSteps = []string{move.ToSwitch.Begin, pause.DrainStep, overlay.NameDstStep, overlay.PivotStep, move.ToSwitch.End, blockjob.SettleStep}
	// The end of a job that writes in the background: a commit, or the copy of a move that keeps
	// base images. Data that the job copies in the pause is flushed in the pivot, and a guest that
	// is resumed before the pivot writes to the overlay alone. So the definition names dst only
	// after the pivot.
	switchBehindSteps = []string{move.ToSwitch.Begin, pause.DrainStep, overlay.PivotStep, overlay.NameDstAfterPivotStep, move.ToSwitch.End, blockjob.SettleStep}
	foldSteps         = []string{"guard", pause.FoldStep, "unguard"}
)

func (w *Way) start() (steps []string, commit string) {
	switch w.Method {
	case move.MethodOffline:
		return []string{place.RegisterStep, overlay.KeepOffStep, move.CreateDestinationStep, "publish_started"}, "publish_started"
	case move.MethodMirror:
		return []string{place.RegisterStep, move.CreateDestinationStep, "publish_started"}, "publish_started"
	}
	return []string{place.RegisterStep, move.CreateDestinationStep, "create_overlay", "name_overlay", overlay.SwitchStep, overlay.FrozenStep, "publish_started"}, overlay.SwitchStep
}

func (w *Way) copy() []string {
	switch {
	case w.OnlyBegins:
		return heldSteps
	case w.Method == move.MethodMirror:
		return []string{blockjob.MirrorStep}
	}
	return []string{transfer.CopyStep}
}

func (w *Way) complete() (steps []string, commit string) {
	begin, end := []string{transfer.VerifyStep, "claim"}, []string{"publish_completed", "remove_overlay", "release_source"}
	switch {
	case w.Method == move.MethodOffline:
		return slices.Concat(begin, []string{overlay.NameDstWhileOffStep, "publish_completed", overlay.EndKeepOffStep, "release_source"}), "publish_completed"
	case w.Method == move.MethodMirror:
		return []string{"claim", "ready", move.ToSwitch.Begin, pause.DrainStep, move.CompareStep, overlay.NameDstStep, overlay.PivotStep, move.ToSwitch.End, blockjob.SettleStep, "publish_completed", "release_source"}, overlay.PivotStep
	case !w.Running:
		return slices.Concat(begin, foldSteps, end), pause.FoldStep
	}
	if w.Held {
		begin = slices.Concat(begin, heldSteps)
	}
	if w.Background {
		return slices.Concat(begin, []string{blockjob.CopyBehindStep}, switchBehindSteps, end), overlay.PivotStep
	}
	return slices.Concat(begin, []string{blockjob.MirrorStep}, switchSteps, end), overlay.PivotStep
}

func (w *Way) back() (steps []string, commit string) {
	if !w.Running {
		return slices.Concat(foldSteps, []string{"remove_overlay"}), pause.FoldStep
	}
	steps = abortSteps
	if w.Held {
		steps = slices.Concat(steps, heldSteps)
	}
	return slices.Concat(steps, []string{blockjob.CommitStep, move.ToSwitch.Begin, pause.DrainStep, overlay.PivotStep, overlay.NameSrcStep, move.ToSwitch.End, blockjob.SettleStep, "remove_overlay"}), overlay.PivotStep
}

// cancel returns the steps of a cancel, which remove dst before the registry frees dst's location.
func (w *Way) cancel() (steps []string, commit string) {
	end := []string{"remove_destination", "publish_cancelled"}
	switch {
	case w.Method == move.MethodOffline:
		return slices.Concat([]string{admitStep}, end, []string{overlay.EndKeepOffStep}), "publish_cancelled"
	case w.Method == move.MethodMirror:
		return slices.Concat([]string{admitStep}, abortSteps, end), "publish_cancelled"
	case w.Committed:
		return slices.Concat([]string{overlay.AdmitCommittedStep, overlay.NameSrcStep, "drop_snapshot", blockjob.SettleStep}, end), "publish_cancelled"
	}
	back, commit := w.back()
	return slices.Concat([]string{admitStep}, back, end), commit
}

// rollback is cancel for a migration that the registry has ended. It leaves dst, which may be
// another volume's.
func (w *Way) rollback() (steps []string, commit string) {
	if w.Lost {
		return slices.Concat(abortSteps, []string{overlay.HandOverStep}), ""
	}
	back, commit := w.back()
	return slices.Concat([]string{admitStep}, back), commit
}
