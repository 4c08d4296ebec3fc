// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"slices"

	"github.com/volferry/volferry/daemon/internal/migrate/led"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/migrate/pause"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Plans returns the plans of all op kinds of a migration, for the runner.
//
// An image that the registry has freed may belong to another volume at once. So a cancel removes
// dst before the registry frees it. In a complete the registry frees src first, because it must not
// name a deleted src, and the step that deletes src checks who uses it (DeleteSource).
func (e *Env) Plans() []op.Plan {
	all := slices.Concat(e.overlayPlans(), e.offlinePlans(), e.mirrorPlans(), e.savedPlans())
	for i := range all {
		all[i] = e.fenced(all[i])
	}
	all = append(slices.Concat(all, e.rollbackPlans(), e.Led.LivePlans()), e.releasePlan(), e.Place.ReleasedPlan())
	for i := range all {
		for j := range all[i].Steps {
			all[i].Steps[j].Critical = pauseSteps[all[i].Steps[j].Name]
		}
	}
	return all
}

// overlayPlans are the plans of method overlay: src is frozen under an overlay, which is folded
// into dst, or back into src.
func (e *Env) overlayPlans() []op.Plan {
	return []op.Plan{
		{Kind: move.KindStart, Commit: "switch_to_overlay", Steps: []op.Step{
			e.Place.StepRegister(),
			e.Place.StepCreateDestination(),
			e.Overlay.StepCreateOverlay(),
			e.Overlay.StepNameOverlay(),
			e.Overlay.StepSwitchToOverlay(),
			e.Overlay.StepVerifyFrozen(),
			e.Place.StepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: move.KindCopy, Steps: []op.Step{
			e.Transfer.StepCopy(),
		}},
		{Kind: move.KindCompleteLive, Commit: overlay.PivotStep, Steps: e.completeLiveSteps(nil, e.mirrorToDst())},
		{Kind: move.KindCompleteLiveHeld, Commit: overlay.PivotStep, Steps: e.completeLiveSteps(e.Pause.HeldSteps(move.ToDst), e.mirrorToDst())},
		{Kind: move.KindCompleteBackground, Commit: overlay.PivotStep, Steps: e.completeLiveSteps(nil, e.copyToDst())},
		{Kind: move.KindCompleteBackgroundHeld, Commit: overlay.PivotStep, Steps: e.completeLiveSteps(e.Pause.HeldSteps(move.ToDst), e.copyToDst())},
		{Kind: move.KindCompleteCold, Commit: "fold", Steps: []op.Step{
			e.Transfer.StepVerifyCopy(),
			e.Place.StepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.Pause.StepGuard("moving"),
			e.Pause.StepFold(move.ToDst),
			e.Pause.StepUnguard(),
			e.Place.StepPublish("publish_completed", api.MigrationCompleted, ""),
			e.Overlay.StepRemoveOverlay(),
			e.Seal.EndsSnapshot(e.Place.StepReleaseSource(), e.Seal.ReleaseSnapshot),
		}},
		{Kind: move.KindCancelLive, Commit: overlay.PivotStep, Steps: e.cancelLiveSteps(nil)},
		{Kind: move.KindCancelLiveHeld, Commit: overlay.PivotStep, Steps: e.cancelLiveSteps(e.Pause.HeldSteps(move.ToSrc))},
		{Kind: move.KindCancelCold, Commit: "fold", Steps: slices.Concat(
			[]op.Step{e.stepAdmitCancel()},
			e.backColdSteps(),
			e.cancelledSteps(),
		)},
		e.cancelCommittedPlan(),
	}
}

// completeLiveSteps bring a running guest to dst. hold has the steps that begin the job with the
// guest suspended, nil if not needed; fold has the steps of the job and the switch.
func (e *Env) completeLiveSteps(hold, fold []op.Step) []op.Step {
	return slices.Concat([]op.Step{
		e.Transfer.StepVerifyCopy(),
		e.Place.StepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
	}, hold, fold, []op.Step{
		e.Place.StepPublish("publish_completed", api.MigrationCompleted, ""),
		e.Overlay.StepRemoveOverlay(),
		e.Seal.EndsSnapshot(e.Place.StepReleaseSource(), e.Seal.ReleaseSnapshot),
	})
}

// mirrorToDst folds the overlay of a running guest into dst with a synchronous job. So the switch
// changes the definition to dst first: dst has every acknowledged write.
func (e *Env) mirrorToDst() []op.Step {
	return []op.Step{
		e.BlockJob.StepMirror(),
		e.Pause.StepPauseToSwitch(move.ToDst),
		e.Pause.StepDrain(move.ToDst),
		e.Overlay.StepNameEnd(move.ToDst),
		e.Overlay.StepPivot(move.ToDst),
		e.Pause.StepResume(move.ToSwitch),
		e.Overlay.StepSettle(move.ToDst),
	}
}

// copyToDst is mirrorToDst with a job that writes only in the background (Spec.Background).
func (e *Env) copyToDst() []op.Step {
	return append([]op.Step{e.BlockJob.StepCopyBehind()}, e.switchBehindJob(move.ToDst)...)
}

// switchBehindJob switches a running guest to the end of a job that writes in the background: a
// commit, or the copy of a move that keeps base images. Data that the job copies in the pause is
// flushed in the pivot, and a guest that is resumed before the pivot writes to the overlay alone.
// So the definition names the end only after the pivot.
func (e *Env) switchBehindJob(to move.Direction) []op.Step {
	left := look.OverlayLeft
	if to.End == move.OnDst {
		left = func(s *move.Spec, _ *move.DiskState) *api.Error { return look.EitherHasMore(s, to) }
	}
	return []op.Step{
		e.Pause.StepPauseToSwitch(to),
		e.Pause.StepDrain(to),
		e.Overlay.StepPivot(to),
		e.Overlay.StepNameLeft(to, left),
		e.Pause.StepResume(move.ToSwitch),
		e.Overlay.StepSettle(to),
	}
}

// cancelLiveSteps cancel the migration of a running guest. hold is as in completeLiveSteps.
func (e *Env) cancelLiveSteps(hold []op.Step) []op.Step {
	return slices.Concat(
		[]op.Step{e.stepAdmitCancel()},
		e.Pause.AbortSteps(e.Pause.StepAbortMirror()),
		hold,
		e.backLiveSteps(),
		e.cancelledSteps(),
	)
}

// rollbackLiveSteps fold the overlay of a running guest back into src. hold is as in
// completeLiveSteps.
func (e *Env) rollbackLiveSteps(hold []op.Step) []op.Step {
	return slices.Concat(
		[]op.Step{e.stepAdmitRollback()},
		e.Pause.AbortSteps(e.Pause.StepEndMirror()),
		hold,
		e.backLiveSteps(),
	)
}

// backLiveSteps bring a running guest back to src, with all its writes to the overlay. Their commit
// point is the pivot.
func (e *Env) backLiveSteps() []op.Step {
	return slices.Concat([]op.Step{e.BlockJob.StepCommit()}, e.switchBehindJob(move.ToSrc), []op.Step{e.Seal.EndsSnapshot(e.Overlay.StepRemoveOverlay(), e.Seal.DropSnapshot)})
}

// backColdSteps are backLiveSteps for an instance that is off. Their commit point is the fold.
func (e *Env) backColdSteps() []op.Step {
	return []op.Step{
		e.Pause.StepGuard("bringing back"),
		e.Pause.StepFold(move.ToSrc),
		e.Pause.StepUnguard(),
		e.Seal.EndsSnapshot(e.Overlay.StepRemoveOverlay(), e.Seal.DropSnapshot),
	}
}

// cancelledSteps end a cancel: dst is removed before the registry frees its place.
func (e *Env) cancelledSteps() []op.Step {
	return []op.Step{
		e.Place.StepRemoveDestination(),
		e.Place.StepPublish("publish_cancelled", api.MigrationCancelled, ""),
	}
}

// offlinePlans are the plans of method offline: src is frozen because no program may open it.
func (e *Env) offlinePlans() []op.Plan {
	return []op.Plan{
		{Kind: move.KindStartOffline, Commit: "publish_started", Steps: []op.Step{
			e.Place.StepRegister(),
			e.Overlay.StepKeepOff(),
			e.Place.StepCreateDestination(),
			e.Place.StepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: move.KindCompleteOffline, Commit: "publish_completed", Steps: []op.Step{
			e.Transfer.StepVerifyCopy(),
			e.Place.StepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.Overlay.StepNameDestination(),
			e.Place.StepPublish("publish_completed", api.MigrationCompleted, ""),
			e.Overlay.StepEndKeepOff(),
			e.Seal.EndsSnapshot(e.Place.StepReleaseSource(), e.Seal.ReleaseSnapshot),
		}},
		{Kind: move.KindCancelOffline, Commit: "publish_cancelled", Steps: []op.Step{
			e.stepAdmitCancel(),
			e.Place.StepRemoveDestination(),
			e.Place.StepPublish("publish_cancelled", api.MigrationCancelled, ""),
			e.Seal.EndsSnapshot(e.Overlay.StepEndKeepOff(), e.Seal.DropSnapshot),
		}},
	}
}

// mirrorPlans are the plans of method mirror: src is not frozen. QEMU makes dst equal to src and
// keeps it equal until the switch, which is as in method overlay. The mirror is an op of its own,
// since it takes long and needs no lock of the instance. If it must begin with the guest suspended,
// an op before it, with the lock, begins it.
func (e *Env) mirrorPlans() []op.Plan {
	return []op.Plan{
		{Kind: move.KindStartMirror, Commit: "publish_started", Steps: []op.Step{
			e.Place.StepRegister(),
			e.Place.StepCreateDestination(),
			e.Place.StepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: move.KindBeginMirror, Steps: e.Pause.HeldSteps(move.ToDst)},
		{Kind: move.KindMirror, Steps: []op.Step{
			e.BlockJob.StepMirror(),
		}},
		{Kind: move.KindCompleteMirror, Commit: overlay.PivotStep, Steps: []op.Step{
			e.Place.StepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.BlockJob.StepReady(),
			e.Pause.StepPauseToSwitch(move.ToDst),
			e.Pause.StepDrain(move.ToDst),
			e.Pause.StepCompare(),
			e.Overlay.StepNameEnd(move.ToDst),
			e.Overlay.StepPivot(move.ToDst),
			e.Pause.StepResume(move.ToSwitch),
			e.Seal.SealsLeft(e.Overlay.StepSettle(move.ToDst)),
			e.Place.StepPublish("publish_completed", api.MigrationCompleted, ""),
			e.Place.StepReleaseSource(),
		}},
		{Kind: move.KindCancelMirror, Commit: "publish_cancelled", Steps: slices.Concat(
			[]op.Step{e.stepAdmitCancel()},
			e.Pause.AbortSteps(e.Pause.StepAbortMirror()),
			e.cancelledSteps(),
		)},
	}
}

// cancelCommittedPlan cancels a migration after another program committed the overlay into src
// under the running guest (`virsh blockcommit --active --pivot`). The guest is already on src, and
// src was written since, so dst is worthless. The overlay is kept: once the guest has overwritten
// its blocks, nothing proves that all of them reached src.
func (e *Env) cancelCommittedPlan() op.Plan {
	return op.Plan{Kind: move.KindCancelCommitted, Commit: "publish_cancelled", Steps: append(
		[]op.Step{
			e.stepAdmitCommitted(),
			e.Overlay.StepNameLeft(move.ToSrc, look.ChainChanged),
			e.Seal.EndsSnapshot(e.Overlay.StepSettle(move.ToSrc), e.Seal.DropSnapshot),
		},
		e.cancelledSteps()...,
	)}
}

// rollbackPlans fold the overlay of a migration that the registry has ended back into src, which
// still belongs to the instance. They do not touch dst, which may be another volume's.
func (e *Env) rollbackPlans() []op.Plan {
	return []op.Plan{
		{Kind: move.KindRollbackLive, Commit: overlay.PivotStep, Steps: e.rollbackLiveSteps(nil)},
		{Kind: move.KindRollbackLiveHeld, Commit: overlay.PivotStep, Steps: e.rollbackLiveSteps(e.Pause.HeldSteps(move.ToSrc))},
		{Kind: move.KindRollbackCold, Commit: "fold", Steps: slices.Concat(
			[]op.Step{e.stepAdmitRollback()},
			e.backColdSteps(),
		)},
	}
}

// releasePlan ends the remaining copy job on this host when the registry has ended a migration
// without this host, since dst may be another volume's. It changes no image and no definition.
func (e *Env) releasePlan() op.Plan {
	return op.Plan{Kind: move.KindRelease, Steps: append(e.Pause.AbortSteps(e.Pause.StepEndMirror()), e.Seal.EndsSnapshot(e.Overlay.StepHandOver(), e.Seal.DropSnapshot))}
}

// savedPlans are the plans of the methods that the registry leads. In method save src is frozen
// because all guests that could write are saved. Before a step touches an image it asks the
// registry whether this host's part is still wanted (wanted), and no step changes the state of the
// migration there.
func (e *Env) savedPlans() []op.Plan {
	return []op.Plan{
		{Kind: move.KindCopySaved, Steps: []op.Step{
			e.Led.Wanted(e.Seal.SealsLeft(e.Led.StepClosed(led.ClosedStep)), led.ToCopy),
			e.Led.Wanted(e.Place.StepCreateDestination(), led.ToCopy),
			e.Led.Wanted(e.Led.ForgettingUndo(e.Transfer.StepCopy()), led.ToCopy),
			e.Led.Wanted(e.Led.UnwrittenSinceClosed(e.Seal.SealsLeft(e.Led.StepClosed(led.StillClosedStep))), led.ToCopy),
		}},
		{Kind: move.KindMakeLive, Steps: []op.Step{
			e.Led.Wanted(e.Place.StepCreateDestination(), led.ToMake),
			e.Led.Wanted(e.Led.StepMarkDestination(), led.ToMake),
		}},
		{Kind: move.KindDropDst, Steps: []op.Step{
			e.Led.StepForget(),
			e.Led.Wanted(led.OnlyIf(e.Led.HasCopy, e.Place.StepRemoveDestination()), led.ToCancel),
		}},
		{Kind: move.KindDropSrc, Steps: []op.Step{
			e.Led.StepForget(),
			e.Led.Wanted(e.Led.StepClosed(led.ClosedStep), led.ToDelete),
			e.Led.Wanted(e.Place.StepReleaseSource(), led.ToDelete),
		}},
	}
}

// pauseSteps are the steps that may find the guest paused by the op.
var pauseSteps = stepNames(
	pause.ToBegin.Begin, pause.BeginStep, pause.ToBegin.End,
	move.ToSwitch.Begin, pause.DrainStep, move.CompareStep, move.ToDst.NameStep(), overlay.PivotStep, move.ToSrc.NameStep(), move.ToSwitch.End,
	move.ToAbort.Begin, pause.AbortStep, move.ToAbort.End,
)

// PausesGuest reports whether an op may have paused its guest at the step with this name.
func PausesGuest(step string) bool { return pauseSteps[step] }
