// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"slices"

	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/instance/shelf"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
)

// Plans returns the plans of all op kinds of instances, for the runner.
func (e *Env) Plans() []op.Plan {
	return slices.Concat(e.powerPlans(), []op.Plan{e.repairPlan(), e.shelvePlan(), e.unshelvePlan()}, e.pausePlans())
}

func (e *Env) powerPlans() []op.Plan {
	plan := func(kind string, does op.Step) op.Plan {
		return op.Plan{Kind: kind, Commit: does.Name, Steps: []op.Step{e.Power.StepAdmitPower(kind), does, e.Subject.StepReport()}}
	}
	return []op.Plan{
		plan(subject.KindStart, e.Power.StepStart()),
		plan(subject.KindStop, e.Power.StepStop()),
		plan(subject.KindReboot, e.Power.StepReboot()),
		plan(subject.KindPause, e.Power.StepPause()),
		plan(subject.KindUnpause, e.Power.StepUnpause()),
	}
}

func (e *Env) repairPlan() op.Plan {
	names := e.Repair.StepNameVolumes()
	return op.Plan{Kind: subject.KindRepair, Commit: names.Name, Steps: []op.Step{e.Repair.StepAdmitRepair(), names, e.Subject.StepReport()}}
}

func (e *Env) shelvePlan() op.Plan {
	return op.Plan{Kind: subject.KindShelve, Commit: shelf.StepNameUndefine, Steps: []op.Step{
		e.Shelf.StepAdmitShelve(),
		e.Shelf.StepStopToShelve(),
		e.Shelf.StepGuardShelf(),
		e.Shelf.StepStore(),
		e.Shelf.StepUndefine(),
		e.Shelf.StepOffload(),
		e.Subject.StepReport(),
	}}
}

func (e *Env) unshelvePlan() op.Plan {
	return op.Plan{Kind: subject.KindUnshelve, Commit: shelf.StepNameComplete, Steps: []op.Step{
		e.Shelf.StepAdmitUnshelve(),
		e.Shelf.StepClaim(),
		e.Shelf.StepGuardUnshelved(),
		e.Shelf.StepConnectVolumes(),
		e.Shelf.StepDefine(),
		e.Shelf.StepVerify(),
		e.Shelf.StepComplete(),
		e.Shelf.StepClear(),
		e.Subject.StepReport(),
		e.Shelf.StepThenStart(),
	}}
}

// pausePlans are the plans of a move with all guests paused. Between save and restore no process
// has the volume open, and between suspend and resume no guest of the volume runs. A failed
// suspend or save is undone. A new location in the definition is right in any case, and is not
// undone.
func (e *Env) pausePlans() []op.Plan {
	return []op.Plan{
		{Kind: subject.KindSuspend, Steps: []op.Step{
			subject.Step(subject.StepNameAdmit, e.Memory.AdmitSuspend, nil, nil),
			e.Memory.StepPauseGuard(),
			e.Memory.StepSuspend(),
			e.Subject.StepReport(),
		}},
		{Kind: subject.KindSave, Steps: []op.Step{
			subject.Step(subject.StepNameAdmit, e.Memory.AdmitSave, nil, nil),
			e.Memory.StepPauseGuard(),
			e.Memory.StepSave(),
			e.Memory.StepReleased(),
			e.Subject.StepReport(),
		}},
		{Kind: subject.KindRestorePaused, Steps: []op.Step{
			e.Memory.StepSavedState(),
			e.Memory.StepConnect(),
			e.Memory.StepName(),
			e.Memory.StepWake(),
			e.Subject.StepReport(),
		}},
		{Kind: subject.KindDiscard, Commit: memory.StepNameDiscard, Steps: []op.Step{
			e.Memory.StepName(),
			e.Memory.StepDiscard(),
			e.Subject.StepReport(),
		}},
		{Kind: subject.KindResume, Commit: memory.StepNameRemoveSaveImage, Steps: []op.Step{
			e.Memory.StepStateBefore(),
			e.Memory.StepRemoveSaveImage(),
			e.Memory.StepResumeGuest(),
			e.Subject.StepReport(),
		}},
	}
}
