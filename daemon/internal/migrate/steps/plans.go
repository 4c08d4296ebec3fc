// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Plans returns the plans of all op kinds of a migration, for the runner.
//
// What the registry has freed may be somebody else's the next moment, so a cancel removes
// dst first. A complete frees src first all the same, since the registry must not name a
// src that is gone, and looks who has it before it deletes it.
func (e *Env) Plans() []op.Plan {
	all := slices.Concat(e.overlayPlans(), e.offlinePlans(), e.mirrorPlans(), e.savedPlans())
	for i := range all {
		all[i] = e.fenced(all[i])
	}
	all = append(append(all, e.rollbackPlans()...), e.releasePlan())
	for i := range all {
		for j := range all[i].Steps {
			all[i].Steps[j].Critical = pauseSteps[all[i].Steps[j].Name]
		}
	}
	return all
}

// overlayPlans: src is frozen under an overlay, which is folded into dst, or
// back into src.
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
		{Kind: KindCompleteLive, Commit: "pivot", Steps: []op.Step{
			e.stepVerifyCopy(),
			e.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.stepMirror(),
			e.stepPause(toSwitch),
			e.stepDrain(toDst),
			e.stepNameEnd(toDst),
			e.stepPivot(toDst),
			e.stepResume(toSwitch),
			e.stepSettle(toDst),
			e.stepPublish("publish_completed", api.MigrationCompleted, ""),
			e.stepRemoveOverlay(),
			e.stepReleaseSource(),
		}},
		{Kind: KindCompleteCold, Commit: "fold", Steps: []op.Step{
			e.stepVerifyCopy(),
			e.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.stepGuard("moving"),
			e.stepFold(toDst),
			e.stepUnguard(),
			e.stepPublish("publish_completed", api.MigrationCompleted, ""),
			e.stepRemoveOverlay(),
			e.stepReleaseSource(),
		}},
		{Kind: KindCancelLive, Commit: "pivot", Steps: slices.Concat(
			[]op.Step{e.stepAdmitCancel()},
			e.abortSteps(e.stepAbortMirror()),
			e.backLiveSteps(),
			e.cancelledSteps(),
		)},
		{Kind: KindCancelCold, Commit: "fold", Steps: slices.Concat(
			[]op.Step{e.stepAdmitCancel()},
			e.backColdSteps(),
			e.cancelledSteps(),
		)},
		e.cancelCommittedPlan(),
	}
}

// backLiveSteps bring a running guest back to src, with all that it wrote to the
// overlay. Their commit point is the pivot.
func (e *Env) backLiveSteps() []op.Step {
	return []op.Step{
		e.stepCommit(),
		e.stepPause(toSwitch),
		e.stepDrain(toSrc),
		e.stepPivot(toSrc),
		e.stepNameLeft(toSrc),
		e.stepResume(toSwitch),
		e.stepSettle(toSrc),
		e.stepRemoveOverlay(),
	}
}

// backColdSteps are backLiveSteps for an instance that is off. Their commit point is
// the fold.
func (e *Env) backColdSteps() []op.Step {
	return []op.Step{
		e.stepGuard("bringing back"),
		e.stepFold(toSrc),
		e.stepUnguard(),
		e.stepRemoveOverlay(),
	}
}

// cancelledSteps end a cancel: dst goes before the registry frees its place.
func (e *Env) cancelledSteps() []op.Step {
	return []op.Step{
		e.stepRemoveDestination(),
		e.stepPublish("publish_cancelled", api.MigrationCancelled, ""),
	}
}

// offlinePlans: src is frozen because nothing may open it.
func (e *Env) offlinePlans() []op.Plan {
	return []op.Plan{
		{Kind: KindStartOffline, Commit: "publish_started", Steps: []op.Step{
			e.stepRegister(),
			e.stepHold(),
			e.stepCreateDestination(),
			e.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: KindCompleteOffline, Commit: "publish_completed", Steps: []op.Step{
			e.stepVerifyCopy(),
			e.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.stepNameDestination(),
			e.stepPublish("publish_completed", api.MigrationCompleted, ""),
			e.stepReleaseHold(),
			e.stepReleaseSource(),
		}},
		{Kind: KindCancelOffline, Commit: "publish_cancelled", Steps: []op.Step{
			e.stepAdmitCancel(),
			e.stepRemoveDestination(),
			e.stepPublish("publish_cancelled", api.MigrationCancelled, ""),
			e.stepReleaseHold(),
		}},
	}
}

// mirrorPlans: src is not frozen. QEMU makes dst equal to it and keeps it so until
// the switch, which is that of the overlay's method. The mirror is an op of its
// own, since it takes long and needs no lock of the instance.
func (e *Env) mirrorPlans() []op.Plan {
	return []op.Plan{
		{Kind: KindStartMirror, Commit: "publish_started", Steps: []op.Step{
			e.stepRegister(),
			e.stepCreateDestination(),
			e.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: KindMirror, Steps: []op.Step{
			e.stepMirror(),
		}},
		{Kind: KindCompleteMirror, Commit: "pivot", Steps: []op.Step{
			e.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.stepReady(),
			e.stepPause(toSwitch),
			e.stepDrain(toDst),
			e.stepCompare(),
			e.stepNameEnd(toDst),
			e.stepPivot(toDst),
			e.stepResume(toSwitch),
			e.stepSettle(toDst),
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
