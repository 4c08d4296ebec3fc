// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// The op kinds of a migration. Live and cold are two ways to the same end; the
// manager picks by whether the guest runs, and picks again if that changes.
const (
	kindStart           = "migration_start"
	kindStartOffline    = "migration_start_offline"
	kindCopy            = "migration_copy"
	kindCompleteLive    = "migration_complete_live"
	kindCompleteCold    = "migration_complete_cold"
	kindCompleteOffline = "migration_complete_offline"
	kindCancelLive      = "migration_cancel_live"
	kindCancelCold      = "migration_cancel_cold"
	kindCancelOffline   = "migration_cancel_offline"
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
	kindStart: goalStart, kindStartOffline: goalStart, kindCopy: goalCopy,
	kindCompleteLive: goalComplete, kindCompleteCold: goalComplete, kindCompleteOffline: goalComplete,
	kindCancelLive: goalCancel, kindCancelCold: goalCancel, kindCancelOffline: goalCancel,
}

// Plans returns the plans of all op kinds of a migration, for the runner.
func (g *Manager) Plans() []op.Plan { return g.machine.plans(g.copied, g.completed) }

// ask is a question about a migration that its other ops answer.
type ask func(context.Context, *Spec) (bool, error)

// plans assembles the steps. What the registry has freed may be somebody else's
// the next moment, so cancel removes dst first; complete frees src first all the
// same, since the registry must not name a src that is gone, and looks who names
// it before it deletes it.
// Copied says whether dst is known to be a copy of
// src; completed, whether a complete is past its commit point.
func (m *machine) plans(copied, completed ask) []op.Plan {
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
		{Kind: kindStartOffline, Commit: "publish_started", Steps: []op.Step{
			m.stepRegister(),
			m.stepHold(),
			m.stepCreateDestination(),
			m.stepPublish("publish_started", api.MigrationStarted, ""),
		}},
		{Kind: kindCopy, Steps: []op.Step{
			m.stepCopy(),
		}},
		{Kind: kindCompleteLive, Commit: "pivot", Steps: []op.Step{
			m.stepVerifyCopy(copied),
			m.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			m.stepMirror(),
			m.stepPause(),
			m.stepDrain(toDst),
			m.stepNameEnd(toDst),
			m.stepPivot(toDst),
			m.stepResume(),
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
		{Kind: kindCompleteOffline, Commit: "publish_completed", Steps: []op.Step{
			m.stepVerifyCopy(copied),
			m.stepPublish("claim", api.MigrationCompleting, api.MigrationStarted),
			m.stepNameDestination(),
			m.stepPublish("publish_completed", api.MigrationCompleted, ""),
			m.stepLetGo(),
			m.stepReleaseSource(),
		}},
		{Kind: kindCancelLive, Commit: "pivot", Steps: []op.Step{
			m.stepAdmitCancel(completed),
			m.stepAbortMirror(),
			m.stepCommit(),
			m.stepPause(),
			m.stepDrain(toSrc),
			m.stepPivot(toSrc),
			m.stepNameLeft(toSrc),
			m.stepResume(),
			m.stepSettle(toSrc),
			m.stepRemoveOverlay(),
			m.stepRemoveDestination(),
			m.stepPublish("publish_cancelled", api.MigrationCancelled, ""),
		}},
		{Kind: kindCancelCold, Commit: "fold", Steps: []op.Step{
			m.stepAdmitCancel(completed),
			m.stepGuard("bringing back"),
			m.stepFold(toSrc),
			m.stepUnguard(),
			m.stepRemoveOverlay(),
			m.stepRemoveDestination(),
			m.stepPublish("publish_cancelled", api.MigrationCancelled, ""),
		}},
		{Kind: kindCancelOffline, Commit: "publish_cancelled", Steps: []op.Step{
			m.stepAdmitCancel(completed),
			m.stepRemoveDestination(),
			m.stepPublish("publish_cancelled", api.MigrationCancelled, ""),
			m.stepLetGo(),
		}},
	}
}

// stepAdmitCancel is asked when it is cancel's turn: a complete that was ahead
// of it may have passed its commit point meanwhile. A copy that ran until now
// is worth nothing once src is written again, so its cursor goes.
func (m *machine) stepAdmitCancel(completed ask) op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		yes, err := completed(ctx, s)
		if err != nil {
			return err
		}
		if yes {
			return pastPointOfNoReturn(s)
		}
		return m.copier.Forget(ctx, s.copyKey())
	}
	return step("admit", do, nil, nil)
}

func pastPointOfNoReturn(s *Spec) *api.Error {
	return api.Errorf(api.CodePastPointOfNoReturn,
		"cannot cancel migration %s of volume %s: it is completed, the volume is at %s", s.MigrationID, s.VolumeName, s.Dst.Path)
}
