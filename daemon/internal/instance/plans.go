// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"slices"

	"github.com/volferry/volferry/internal/op"
)

// Plans returns the plans of all op kinds of instances, for the runner.
func (m *Manager) Plans() []op.Plan {
	return slices.Concat(m.env.powerPlans(), []op.Plan{m.env.shelvePlan(), m.env.unshelvePlan()}, m.pausePlans())
}

func (e *stepEnv) powerPlans() []op.Plan {
	plan := func(kind string, does op.Step) op.Plan {
		return op.Plan{Kind: kind, Commit: does.Name, Steps: []op.Step{e.stepAdmitPower(kind), does, e.stepReport()}}
	}
	return []op.Plan{
		plan(kindStart, e.stepStart()),
		plan(kindStop, e.stepStop()),
		plan(kindReboot, e.stepReboot()),
		plan(kindPause, e.stepPause()),
		plan(kindUnpause, e.stepUnpause()),
	}
}

func (e *stepEnv) shelvePlan() op.Plan {
	return op.Plan{Kind: kindShelve, Commit: stepNameUndefine, Steps: []op.Step{
		e.stepAdmitShelve(),
		e.stepStopToShelve(),
		e.stepGuardShelf(),
		e.stepStore(),
		e.stepUndefine(),
		e.stepOffload(),
		e.stepReport(),
	}}
}

func (e *stepEnv) unshelvePlan() op.Plan {
	return op.Plan{Kind: kindUnshelve, Commit: stepNameComplete, Steps: []op.Step{
		e.stepAdmitUnshelve(),
		e.stepClaim(),
		e.stepGuardUnshelved(),
		e.stepConnectVolumes(),
		e.stepDefine(),
		e.stepVerify(),
		e.stepComplete(),
		e.stepClear(),
		e.stepReport(),
		e.stepThenStart(),
	}}
}

// pausePlans are the plans of a move with all guests paused: no process has the volume
// open between save and restore, and no guest of the volume runs between suspend and
// resume. A suspend or a save that fails is undone. The name that a restore puts into the
// definition is not, since the location that it was given is right whatever follows.
func (m *Manager) pausePlans() []op.Plan {
	e := m.env
	return []op.Plan{
		{Kind: kindSuspend, Steps: []op.Step{
			step(stepNameAdmit, m.admitSuspend, nil, nil),
			e.stepPauseGuard(),
			e.stepSuspend(),
			e.stepReport(),
		}},
		{Kind: kindSave, Steps: []op.Step{
			step(stepNameAdmit, m.admitSave, nil, nil),
			e.stepPauseGuard(),
			e.stepSave(),
			e.stepReleased(),
			e.stepReport(),
		}},
		{Kind: kindRestore, Commit: stepNameRemoveSaveImage, Steps: []op.Step{
			m.stepSavedState(),
			e.stepConnect(),
			e.stepName(),
			e.stepWake(),
			e.stepRemoveSaveImage(),
			e.stepResumeGuest(),
			e.stepReport(),
		}},
		{Kind: kindRestorePaused, Steps: []op.Step{
			m.stepSavedState(),
			e.stepConnect(),
			e.stepName(),
			e.stepWake(),
			e.stepReport(),
		}},
		{Kind: kindDiscard, Commit: stepNameDiscard, Steps: []op.Step{
			e.stepName(),
			e.stepDiscard(),
			e.stepReport(),
		}},
		{Kind: kindResume, Commit: stepNameRemoveSaveImage, Steps: []op.Step{
			m.stepStateBefore(),
			e.stepRemoveSaveImage(),
			e.stepResumeGuest(),
			e.stepReport(),
		}},
	}
}
