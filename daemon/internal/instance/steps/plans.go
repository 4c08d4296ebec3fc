// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"slices"

	"github.com/volferry/volferry/internal/op"
)

// Plans returns the plans of all op kinds of instances, for the runner.
func (e *Env) Plans() []op.Plan {
	return slices.Concat(e.powerPlans(), []op.Plan{e.repairPlan(), e.shelvePlan(), e.unshelvePlan()}, e.pausePlans())
}

func (e *Env) powerPlans() []op.Plan {
	plan := func(kind string, does op.Step) op.Plan {
		return op.Plan{Kind: kind, Commit: does.Name, Steps: []op.Step{e.stepAdmitPower(kind), does, e.stepReport()}}
	}
	return []op.Plan{
		plan(KindStart, e.stepStart()),
		plan(KindStop, e.stepStop()),
		plan(KindReboot, e.stepReboot()),
		plan(KindPause, e.stepPause()),
		plan(KindUnpause, e.stepUnpause()),
	}
}

func (e *Env) repairPlan() op.Plan {
	names := e.stepNameVolumes()
	return op.Plan{Kind: KindRepair, Commit: names.Name, Steps: []op.Step{e.stepAdmitRepair(), names, e.stepReport()}}
}

func (e *Env) shelvePlan() op.Plan {
	return op.Plan{Kind: KindShelve, Commit: stepNameUndefine, Steps: []op.Step{
		e.stepAdmitShelve(),
		e.stepStopToShelve(),
		e.stepGuardShelf(),
		e.stepStore(),
		e.stepUndefine(),
		e.stepOffload(),
		e.stepReport(),
	}}
}

func (e *Env) unshelvePlan() op.Plan {
	return op.Plan{Kind: KindUnshelve, Commit: stepNameComplete, Steps: []op.Step{
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

// pausePlans are the plans of a move with all guests paused: between save and restore no process
// has the volume open, and between suspend and resume no guest of the volume runs. A failed suspend
// or save is undone, except for the location in the definition, which is right in any case.
func (e *Env) pausePlans() []op.Plan {
	return []op.Plan{
		{Kind: KindSuspend, Steps: []op.Step{
			step(StepNameAdmit, e.admitSuspend, nil, nil),
			e.stepPauseGuard(),
			e.stepSuspend(),
			e.stepReport(),
		}},
		{Kind: KindSave, Steps: []op.Step{
			step(StepNameAdmit, e.admitSave, nil, nil),
			e.stepPauseGuard(),
			e.stepSave(),
			e.stepReleased(),
			e.stepReport(),
		}},
		{Kind: KindRestore, Commit: stepNameRemoveSaveImage, Steps: []op.Step{
			e.stepSavedState(),
			e.stepConnect(),
			e.stepName(),
			e.stepWake(),
			e.stepRemoveSaveImage(),
			e.stepResumeGuest(),
			e.stepReport(),
		}},
		{Kind: KindRestorePaused, Steps: []op.Step{
			e.stepSavedState(),
			e.stepConnect(),
			e.stepName(),
			e.stepWake(),
			e.stepReport(),
		}},
		{Kind: KindDiscard, Commit: stepNameDiscard, Steps: []op.Step{
			e.stepName(),
			e.stepDiscard(),
			e.stepReport(),
		}},
		{Kind: KindResume, Commit: stepNameRemoveSaveImage, Steps: []op.Step{
			e.stepStateBefore(),
			e.stepRemoveSaveImage(),
			e.stepResumeGuest(),
			e.stepReport(),
		}},
	}
}
