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
	// kindLetGo is the cancel of a migration that the registry has ended; kindTakeBack
	// that of one whose src is still the instance's.
	kindLetGo        = "migration_let_go"
	kindTakeBackLive = "migration_take_back_live"
	kindTakeBackCold = "migration_take_back_cold"
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
	kindCancelLive: goalCancel, kindCancelCold: goalCancel, kindCancelOffline: goalCancel, kindCancelMirror: goalCancel, kindCancelCommitted: goalCancel, kindLetGo: goalCancel,
	kindTakeBackLive: goalCancel, kindTakeBackCold: goalCancel,
	kindCopySaved: goalCopy, kindDropDst: goalCancel, kindDropSrc: goalComplete,
}

// Plans returns the plans of all op kinds of a migration, for the runner.
func (g *Manager) Plans() []op.Plan {
	return append(g.machine.plans(g.copied, g.completed), g.machine.savedPlans(g.copied)...)
}

// ask is a question about a migration that its other ops answer.
type ask func(context.Context, *Spec) (bool, error)

// plans assembles the steps. What the registry has freed may be somebody else's
// the next moment, so cancel removes dst first; complete frees src first all the
// same, since the registry must not name a src that is gone, and looks who names
// it before it deletes it.
// Copied says whether dst is known to be a copy of
// src; completed, whether a complete is past its commit point.
func (m *machine) plans(copied, completed ask) []op.Plan {
	all := slices.Concat(m.overlayPlans(copied, completed), m.offlinePlans(copied, completed), m.mirrorPlans(completed))
	for i := range all {
		all[i] = m.fenced(all[i])
	}
	all = append(append(all, m.takeBackPlans()...), m.letGoPlan())
	for i := range all {
		for j := range all[i].Steps {
			all[i].Steps[j].Critical = duringPause[all[i].Steps[j].Name]
		}
	}
	return all
}

// overlayPlans: src is frozen under an overlay, which is folded into dst, or
// back into src.
func (m *machine) overlayPlans(copied, completed ask) []op.Plan {
	return []op.Plan{
		{Kind: kindStart, Commit: "switch_to_overlay", Steps: []op.Step{
			m.stepRegister(),
			m.stepCreateDestination(),
			m.stepCreateOverlay(),
			m.stepNameOverlay(),
			m.stepSwitchToOverlay(),
			m.stepVerifyFrozen(),
			m.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: kindCopy, Steps: []op.Step{
			m.stepCopy(),
		}},
		{Kind: kindCompleteLive, Commit: "pivot", Steps: []op.Step{
			m.stepVerifyCopy(copied),
			m.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			m.stepMirror(),
			m.stepPause(toSwitch),
			m.stepDrain(toDst),
			m.stepNameEnd(toDst),
			m.stepPivot(toDst),
			m.stepResume(toSwitch),
			m.stepSettle(toDst),
			m.stepPublish("publish_completed", api.MigrationCompleted, ""),
			m.stepRemoveOverlay(),
			m.stepReleaseSource(),
		}},
		{Kind: kindCompleteCold, Commit: "fold", Steps: []op.Step{
			m.stepVerifyCopy(copied),
			m.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			m.stepGuard("moving"),
			m.stepFold(toDst),
			m.stepUnguard(),
			m.stepPublish("publish_completed", api.MigrationCompleted, ""),
			m.stepRemoveOverlay(),
			m.stepReleaseSource(),
		}},
		{Kind: kindCancelLive, Commit: "pivot", Steps: slices.Concat(
			[]op.Step{m.stepAdmitCancel(completed)},
			m.abortSteps(m.stepAbortMirror()),
			m.backLiveSteps(),
			m.cancelledSteps(),
		)},
		{Kind: kindCancelCold, Commit: "fold", Steps: slices.Concat(
			[]op.Step{m.stepAdmitCancel(completed)},
			m.backColdSteps(),
			m.cancelledSteps(),
		)},
		m.cancelCommittedPlan(completed),
	}
}

// backLiveSteps bring a running guest back to src, with all that it wrote to the
// overlay. Their commit point is the pivot.
func (m *machine) backLiveSteps() []op.Step {
	return []op.Step{
		m.stepCommit(),
		m.stepPause(toSwitch),
		m.stepDrain(toSrc),
		m.stepPivot(toSrc),
		m.stepNameLeft(toSrc),
		m.stepResume(toSwitch),
		m.stepSettle(toSrc),
		m.stepRemoveOverlay(),
	}
}

// backColdSteps are backLiveSteps for an instance that is off. Their commit point is
// the fold.
func (m *machine) backColdSteps() []op.Step {
	return []op.Step{
		m.stepGuard("bringing back"),
		m.stepFold(toSrc),
		m.stepUnguard(),
		m.stepRemoveOverlay(),
	}
}

// cancelledSteps end a cancel: dst goes before the registry frees its place.
func (m *machine) cancelledSteps() []op.Step {
	return []op.Step{
		m.stepRemoveDestination(),
		m.stepPublish("publish_cancelled", api.MigrationCancelled, ""),
	}
}

// offlinePlans: src is frozen because nothing may open it.
func (m *machine) offlinePlans(copied, completed ask) []op.Plan {
	return []op.Plan{
		{Kind: kindStartOffline, Commit: "publish_started", Steps: []op.Step{
			m.stepRegister(),
			m.stepHold(),
			m.stepCreateDestination(),
			m.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: kindCompleteOffline, Commit: "publish_completed", Steps: []op.Step{
			m.stepVerifyCopy(copied),
			m.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			m.stepNameDestination(),
			m.stepPublish("publish_completed", api.MigrationCompleted, ""),
			m.stepLetGo(),
			m.stepReleaseSource(),
		}},
		{Kind: kindCancelOffline, Commit: "publish_cancelled", Steps: []op.Step{
			m.stepAdmitCancel(completed),
			m.stepRemoveDestination(),
			m.stepPublish("publish_cancelled", api.MigrationCancelled, ""),
			m.stepLetGo(),
		}},
	}
}

// mirrorPlans: src is not frozen. QEMU makes dst equal to it and keeps it so until
// the switch, which is that of the overlay's method. The mirror is an op of its
// own, since it takes long and needs no lock of the instance.
func (m *machine) mirrorPlans(completed ask) []op.Plan {
	return []op.Plan{
		{Kind: kindStartMirror, Commit: "publish_started", Steps: []op.Step{
			m.stepRegister(),
			m.stepCreateDestination(),
			m.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: kindMirror, Steps: []op.Step{
			m.stepMirror(),
		}},
		{Kind: kindCompleteMirror, Commit: "pivot", Steps: []op.Step{
			m.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			m.stepReady(),
			m.stepPause(toSwitch),
			m.stepDrain(toDst),
			m.stepCompare(),
			m.stepNameEnd(toDst),
			m.stepPivot(toDst),
			m.stepResume(toSwitch),
			m.stepSettle(toDst),
			m.stepPublish("publish_completed", api.MigrationCompleted, ""),
			m.stepReleaseSource(),
		}},
		{Kind: kindCancelMirror, Commit: "publish_cancelled", Steps: slices.Concat(
			[]op.Step{m.stepAdmitCancel(completed)},
			m.abortSteps(m.stepAbortMirror()),
			m.cancelledSteps(),
		)},
	}
}

// stepAdmitCancel is asked when it is cancel's turn: a complete that was ahead
// of it may have passed its commit point meanwhile. A copy that ran until now
// is worth nothing once src is written again, so its cursor goes.
func (m *machine) stepAdmitCancel(completed ask) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		yes, err := completed(ctx, s)
		if err != nil {
			return err
		}
		if yes {
			return pastPointOfNoReturn(s)
		}
		if err := m.mayBringBack(ctx, s, r.OpID()); err != nil {
			return err
		}
		if err := m.copier.Forget(ctx, s.copyKey()); err != nil {
			return err
		}
		return r.SetOutput(admittedOutput{Admitted: true})
	}
	return step(admitStep, do, nil, nil)
}

const admitStep = "admit"

// admittedOutput says that nothing was in the way of a cancel when it began.
type admittedOutput struct {
	Admitted bool `json:"admitted"`
}

// mayBringBack refuses a cancel that cannot succeed before it changes anything: its
// overlay is not the disk's any more, or src is not as it was. One that has begun to
// write src has to go on.
func (m *machine) mayBringBack(ctx context.Context, s *Spec, opID string) error {
	if s.Method != MethodOverlay {
		return nil
	}
	p, err := m.past(ctx, s, opID)
	if err != nil || p.folding {
		return err
	}
	v, err := m.sure(ctx, s)
	if err != nil {
		return err
	}
	if v.active && v.live != onOverlay || !v.active && v.config != onOverlay {
		return changed(s, v)
	}
	return m.sealedUnlessCommitted(ctx, s, v, opID)
}

func pastPointOfNoReturn(s *Spec) *api.Error {
	return api.Errorf(api.CodePastPointOfNoReturn,
		"cannot cancel migration %s of volume %s: it is completed, the volume is at %s", s.MigrationID, s.VolumeName, s.Dst.Path)
}
