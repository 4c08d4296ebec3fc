// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Plans returns the plans of all op kinds of a migration, for the runner.
//
// An image that the registry has freed may belong to another volume at once. So a cancel removes
// dst before the registry frees it. In a complete the registry frees src first, because it must not
// name a deleted src, and the step that deletes src checks who uses it (deleteSource).
func (e *Env) Plans() []op.Plan {
	all := slices.Concat(e.overlayPlans(), e.offlinePlans(), e.mirrorPlans(), e.savedPlans())
	for i := range all {
		all[i] = e.fenced(all[i])
	}
	all = append(slices.Concat(all, e.rollbackPlans(), e.livePlans()), e.releasePlan(), e.releasedPlan())
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
		{Kind: KindStart, Commit: "switch_to_overlay", Steps: []op.Step{
			e.stepRegister(),
			e.stepCreateDestination(),
			e.stepCreateOverlay(),
			e.stepNameOverlay(),
			e.stepSwitchToOverlay(),
			e.stepVerifyFrozen(),
			e.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: KindCopy, Steps: []op.Step{
			e.stepCopy(),
		}},
		{Kind: KindCompleteLive, Commit: pivotStep, Steps: e.completeLiveSteps(nil, e.mirrorToDst())},
		{Kind: KindCompleteLiveHeld, Commit: pivotStep, Steps: e.completeLiveSteps(e.heldSteps(toDst), e.mirrorToDst())},
		{Kind: KindCompleteBackground, Commit: pivotStep, Steps: e.completeLiveSteps(nil, e.copyToDst())},
		{Kind: KindCompleteBackgroundHeld, Commit: pivotStep, Steps: e.completeLiveSteps(e.heldSteps(toDst), e.copyToDst())},
		{Kind: KindCompleteCold, Commit: "fold", Steps: []op.Step{
			e.stepVerifyCopy(),
			e.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.stepGuard("moving"),
			e.stepFold(toDst),
			e.stepUnguard(),
			e.stepPublish("publish_completed", api.MigrationCompleted, ""),
			e.stepRemoveOverlay(),
			e.endsSnapshot(e.stepReleaseSource(), e.releaseSnapshot),
		}},
		{Kind: KindCancelLive, Commit: pivotStep, Steps: e.cancelLiveSteps(nil)},
		{Kind: KindCancelLiveHeld, Commit: pivotStep, Steps: e.cancelLiveSteps(e.heldSteps(toSrc))},
		{Kind: KindCancelCold, Commit: "fold", Steps: slices.Concat(
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
		e.stepVerifyCopy(),
		e.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
	}, hold, fold, []op.Step{
		e.stepPublish("publish_completed", api.MigrationCompleted, ""),
		e.stepRemoveOverlay(),
		e.endsSnapshot(e.stepReleaseSource(), e.releaseSnapshot),
	})
}

// mirrorToDst folds the overlay of a running guest into dst with a synchronous job. So the switch
// changes the definition to dst first: dst has every acknowledged write.
func (e *Env) mirrorToDst() []op.Step {
	return []op.Step{
		e.stepMirror(),
		e.stepPauseToSwitch(toDst),
		e.stepDrain(toDst),
		e.stepNameEnd(toDst),
		e.stepPivot(toDst),
		e.stepResume(toSwitch),
		e.stepSettle(toDst),
	}
}

// copyToDst is mirrorToDst with a job that writes only in the background (Spec.Background).
func (e *Env) copyToDst() []op.Step {
	return append([]op.Step{e.stepCopyBehind()}, e.switchBehindJob(toDst)...)
}

// switchBehindJob switches a running guest to the end of a job that writes in the background: a
// commit, or the copy of a move that keeps base images. Data that the job copies in the pause is
// flushed in the pivot, and a guest that is resumed before the pivot writes to the overlay alone.
// So the definition names the end only after the pivot.
func (e *Env) switchBehindJob(to direction) []op.Step {
	left := overlayLeft
	if to.end == OnDst {
		left = func(s *Spec, _ *diskState) *api.Error { return eitherHasMore(s, to) }
	}
	return []op.Step{
		e.stepPauseToSwitch(to),
		e.stepDrain(to),
		e.stepPivot(to),
		e.stepNameLeft(to, left),
		e.stepResume(toSwitch),
		e.stepSettle(to),
	}
}

// cancelLiveSteps cancel the migration of a running guest. hold is as in completeLiveSteps.
func (e *Env) cancelLiveSteps(hold []op.Step) []op.Step {
	return slices.Concat(
		[]op.Step{e.stepAdmitCancel()},
		e.abortSteps(e.stepAbortMirror()),
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
		e.abortSteps(e.stepEndMirror()),
		hold,
		e.backLiveSteps(),
	)
}

// backLiveSteps bring a running guest back to src, with all its writes to the overlay. Their commit
// point is the pivot.
func (e *Env) backLiveSteps() []op.Step {
	return slices.Concat([]op.Step{e.stepCommit()}, e.switchBehindJob(toSrc), []op.Step{e.endsSnapshot(e.stepRemoveOverlay(), e.dropSnapshot)})
}

// backColdSteps are backLiveSteps for an instance that is off. Their commit point is the fold.
func (e *Env) backColdSteps() []op.Step {
	return []op.Step{
		e.stepGuard("bringing back"),
		e.stepFold(toSrc),
		e.stepUnguard(),
		e.endsSnapshot(e.stepRemoveOverlay(), e.dropSnapshot),
	}
}

// cancelledSteps end a cancel: dst is removed before the registry frees its place.
func (e *Env) cancelledSteps() []op.Step {
	return []op.Step{
		e.stepRemoveDestination(),
		e.stepPublish("publish_cancelled", api.MigrationCancelled, ""),
	}
}

// offlinePlans are the plans of method offline: src is frozen because no program may open it.
func (e *Env) offlinePlans() []op.Plan {
	return []op.Plan{
		{Kind: KindStartOffline, Commit: "publish_started", Steps: []op.Step{
			e.stepRegister(),
			e.stepKeepOff(),
			e.stepCreateDestination(),
			e.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: KindCompleteOffline, Commit: "publish_completed", Steps: []op.Step{
			e.stepVerifyCopy(),
			e.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.stepNameDestination(),
			e.stepPublish("publish_completed", api.MigrationCompleted, ""),
			e.stepEndKeepOff(),
			e.endsSnapshot(e.stepReleaseSource(), e.releaseSnapshot),
		}},
		{Kind: KindCancelOffline, Commit: "publish_cancelled", Steps: []op.Step{
			e.stepAdmitCancel(),
			e.stepRemoveDestination(),
			e.stepPublish("publish_cancelled", api.MigrationCancelled, ""),
			e.endsSnapshot(e.stepEndKeepOff(), e.dropSnapshot),
		}},
	}
}

// mirrorPlans are the plans of method mirror: src is not frozen. QEMU makes dst equal to src and
// keeps it equal until the switch, which is as in method overlay. The mirror is an op of its own,
// since it takes long and needs no lock of the instance. If it must begin with the guest suspended,
// an op before it, with the lock, begins it.
func (e *Env) mirrorPlans() []op.Plan {
	return []op.Plan{
		{Kind: KindStartMirror, Commit: "publish_started", Steps: []op.Step{
			e.stepRegister(),
			e.stepCreateDestination(),
			e.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: KindBeginMirror, Steps: e.heldSteps(toDst)},
		{Kind: KindMirror, Steps: []op.Step{
			e.stepMirror(),
		}},
		{Kind: KindCompleteMirror, Commit: pivotStep, Steps: []op.Step{
			e.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.stepReady(),
			e.stepPauseToSwitch(toDst),
			e.stepDrain(toDst),
			e.stepCompare(),
			e.stepNameEnd(toDst),
			e.stepPivot(toDst),
			e.stepResume(toSwitch),
			e.sealsLeft(e.stepSettle(toDst)),
			e.stepPublish("publish_completed", api.MigrationCompleted, ""),
			e.stepReleaseSource(),
		}},
		{Kind: KindCancelMirror, Commit: "publish_cancelled", Steps: slices.Concat(
			[]op.Step{e.stepAdmitCancel()},
			e.abortSteps(e.stepAbortMirror()),
			e.cancelledSteps(),
		)},
	}
}

// cancelCommittedPlan cancels a migration after another program committed the overlay into src
// under the running guest (`virsh blockcommit --active --pivot`). The guest is already on src, and
// src was written since, so dst is worthless. The overlay is kept: once the guest has overwritten
// its blocks, nothing proves that all of them reached src.
func (e *Env) cancelCommittedPlan() op.Plan {
	return op.Plan{Kind: KindCancelCommitted, Commit: "publish_cancelled", Steps: append(
		[]op.Step{
			e.stepAdmitCommitted(),
			e.stepNameLeft(toSrc, chainChanged),
			e.endsSnapshot(e.stepSettle(toSrc), e.dropSnapshot),
		},
		e.cancelledSteps()...,
	)}
}

// rollbackPlans fold the overlay of a migration that the registry has ended back into src, which
// still belongs to the instance. They do not touch dst, which may be another volume's.
func (e *Env) rollbackPlans() []op.Plan {
	return []op.Plan{
		{Kind: KindRollbackLive, Commit: pivotStep, Steps: e.rollbackLiveSteps(nil)},
		{Kind: KindRollbackLiveHeld, Commit: pivotStep, Steps: e.rollbackLiveSteps(e.heldSteps(toSrc))},
		{Kind: KindRollbackCold, Commit: "fold", Steps: slices.Concat(
			[]op.Step{e.stepAdmitRollback()},
			e.backColdSteps(),
		)},
	}
}

// releasePlan ends the remaining copy job on this host when the registry has ended a migration
// without this host, since dst may be another volume's. It changes no image and no definition.
func (e *Env) releasePlan() op.Plan {
	return op.Plan{Kind: KindRelease, Steps: append(e.abortSteps(e.stepEndMirror()), e.endsSnapshot(e.stepHandOver(), e.dropSnapshot))}
}

// savedPlans are the plans of the methods that the registry leads. In method save src is frozen
// because all guests that could write are saved. Before a step touches an image it asks the
// registry whether this host's part is still wanted (wanted), and no step changes the state of the
// migration there.
func (e *Env) savedPlans() []op.Plan {
	return []op.Plan{
		{Kind: KindCopySaved, Steps: []op.Step{
			e.wanted(e.sealsLeft(e.stepClosed(closedStep)), toCopy),
			e.wanted(e.stepCreateDestination(), toCopy),
			e.wanted(e.forgettingUndo(e.stepCopy()), toCopy),
			e.wanted(e.unwrittenSinceClosed(e.sealsLeft(e.stepClosed(stillClosedStep))), toCopy),
		}},
		{Kind: KindMakeLive, Steps: []op.Step{
			e.wanted(e.stepCreateDestination(), toMake),
			e.wanted(e.stepMarkDestination(), toMake),
		}},
		{Kind: KindDropDst, Steps: []op.Step{
			e.stepForget(),
			e.wanted(onlyIf(e.hasCopy, e.stepRemoveDestination()), toCancel),
		}},
		{Kind: KindDropSrc, Steps: []op.Step{
			e.stepForget(),
			e.wanted(e.stepClosed(closedStep), toDelete),
			e.wanted(e.stepReleaseSource(), toDelete),
		}},
	}
}

// pauseSteps are the steps that may find the guest paused by the op.
var pauseSteps = stepNames(
	toBegin.begin, beginStep, toBegin.end,
	toSwitch.begin, drainStep, compareStep, toDst.nameStep(), pivotStep, toSrc.nameStep(), toSwitch.end,
	toAbort.begin, abortStep, toAbort.end,
)

// PausesGuest reports whether an op may have paused its guest at the step with this name.
func PausesGuest(step string) bool { return pauseSteps[step] }
