// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// The op kinds of a migration. Live and cold are two ways to the same end; the
// manager picks by whether the guest runs, and picks again if that changes.
const (
	kindStart           = "migration_start"
	kindStartOffline    = "migration_start_offline"
	kindStartMirror     = "migration_start_mirror"
	kindCopy            = "migration_copy"
	kindMirror          = "migration_mirror"
	kindCompleteLive    = "migration_complete_live"
	kindCompleteCold    = "migration_complete_cold"
	kindCompleteOffline = "migration_complete_offline"
	kindCompleteMirror  = "migration_complete_mirror"
	kindCancelLive      = "migration_cancel_live"
	kindCancelCold      = "migration_cancel_cold"
	kindCancelOffline   = "migration_cancel_offline"
	kindCancelMirror    = "migration_cancel_mirror"
	kindCancelCommitted = "migration_cancel_committed"
	// kindRelease is the cancel of a migration that the registry has ended; kindTakeBack
	// that of one whose src is still the instance's.
	kindRelease      = "migration_let_go"
	kindRollbackLive = "migration_take_back_live"
	kindRollbackCold = "migration_take_back_cold"
)

// goal is what an op kind is for.
type goal string

const (
	goalStart    goal = "start"
	goalCopy     goal = "copy"
	goalComplete goal = "complete"
	goalCancel   goal = "cancel"
)

var goals = map[string]goal{
	kindStart: goalStart, kindStartOffline: goalStart, kindStartMirror: goalStart,
	kindCopy: goalCopy, kindMirror: goalCopy,
	kindCompleteLive: goalComplete, kindCompleteCold: goalComplete, kindCompleteOffline: goalComplete, kindCompleteMirror: goalComplete,
	kindCancelLive: goalCancel, kindCancelCold: goalCancel, kindCancelOffline: goalCancel, kindCancelMirror: goalCancel, kindCancelCommitted: goalCancel, kindRelease: goalCancel,
	kindRollbackLive: goalCancel, kindRollbackCold: goalCancel,
	kindCopySaved: goalCopy, kindDropDst: goalCancel, kindDropSrc: goalComplete,
}

// Plans returns the plans of all op kinds of a migration, for the runner.
func (m *Manager) Plans() []op.Plan {
	return append(m.env.plans(m.copied, m.completed), m.env.savedPlans(m.copied)...)
}

// predicate is a question about a migration that its other ops answer.
type predicate func(context.Context, *Spec) (bool, error)

// plans assembles the steps. What the registry has freed may be somebody else's
// the next moment, so cancel removes dst first; complete frees src first all the
// same, since the registry must not name a src that is gone, and looks who names
// it before it deletes it.
// Copied says whether dst is known to be a copy of
// src; completed, whether a complete is past its commit point.
func (e *Env) plans(copied, completed predicate) []op.Plan {
	all := slices.Concat(e.overlayPlans(copied, completed), e.offlinePlans(copied, completed), e.mirrorPlans(completed))
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
func (e *Env) overlayPlans(copied, completed predicate) []op.Plan {
	return []op.Plan{
		{Kind: kindStart, Commit: "switch_to_overlay", Steps: []op.Step{
			e.stepRegister(),
			e.stepCreateDestination(),
			e.stepCreateOverlay(),
			e.stepNameOverlay(),
			e.stepSwitchToOverlay(),
			e.stepVerifyFrozen(),
			e.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: kindCopy, Steps: []op.Step{
			e.stepCopy(),
		}},
		{Kind: kindCompleteLive, Commit: "pivot", Steps: []op.Step{
			e.stepVerifyCopy(copied),
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
		{Kind: kindCompleteCold, Commit: "fold", Steps: []op.Step{
			e.stepVerifyCopy(copied),
			e.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.stepGuard("moving"),
			e.stepFold(toDst),
			e.stepUnguard(),
			e.stepPublish("publish_completed", api.MigrationCompleted, ""),
			e.stepRemoveOverlay(),
			e.stepReleaseSource(),
		}},
		{Kind: kindCancelLive, Commit: "pivot", Steps: slices.Concat(
			[]op.Step{e.stepAdmitCancel(completed)},
			e.abortSteps(e.stepAbortMirror()),
			e.backLiveSteps(),
			e.cancelledSteps(),
		)},
		{Kind: kindCancelCold, Commit: "fold", Steps: slices.Concat(
			[]op.Step{e.stepAdmitCancel(completed)},
			e.backColdSteps(),
			e.cancelledSteps(),
		)},
		e.cancelCommittedPlan(completed),
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
func (e *Env) offlinePlans(copied, completed predicate) []op.Plan {
	return []op.Plan{
		{Kind: kindStartOffline, Commit: "publish_started", Steps: []op.Step{
			e.stepRegister(),
			e.stepHold(),
			e.stepCreateDestination(),
			e.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: kindCompleteOffline, Commit: "publish_completed", Steps: []op.Step{
			e.stepVerifyCopy(copied),
			e.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			e.stepNameDestination(),
			e.stepPublish("publish_completed", api.MigrationCompleted, ""),
			e.stepReleaseHold(),
			e.stepReleaseSource(),
		}},
		{Kind: kindCancelOffline, Commit: "publish_cancelled", Steps: []op.Step{
			e.stepAdmitCancel(completed),
			e.stepRemoveDestination(),
			e.stepPublish("publish_cancelled", api.MigrationCancelled, ""),
			e.stepReleaseHold(),
		}},
	}
}

// mirrorPlans: src is not frozen. QEMU makes dst equal to it and keeps it so until
// the switch, which is that of the overlay's method. The mirror is an op of its
// own, since it takes long and needs no lock of the instance.
func (e *Env) mirrorPlans(completed predicate) []op.Plan {
	return []op.Plan{
		{Kind: kindStartMirror, Commit: "publish_started", Steps: []op.Step{
			e.stepRegister(),
			e.stepCreateDestination(),
			e.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: kindMirror, Steps: []op.Step{
			e.stepMirror(),
		}},
		{Kind: kindCompleteMirror, Commit: "pivot", Steps: []op.Step{
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
		{Kind: kindCancelMirror, Commit: "publish_cancelled", Steps: slices.Concat(
			[]op.Step{e.stepAdmitCancel(completed)},
			e.abortSteps(e.stepAbortMirror()),
			e.cancelledSteps(),
		)},
	}
}
