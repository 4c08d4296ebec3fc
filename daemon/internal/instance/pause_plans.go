// SPDX-License-Identifier: Apache-2.0

package instance

import "github.com/volferry/volferry/internal/op"

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
