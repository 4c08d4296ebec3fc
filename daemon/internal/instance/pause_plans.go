// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// pausePlans: no process has the volume open between save and restore, and no guest of
// the volume runs between suspend and resume. What is done for a guest that cannot be
// suspended or saved after all is undone; the first thing that a restore does is not,
// since the location that it is told is right whatever follows.
func (g *Manager) pausePlans() []op.Plan {
	m := g.machine
	return []op.Plan{
		{Kind: kindSuspend, Steps: []op.Step{
			step(stepNameAdmit, g.admitSuspend, nil, nil),
			m.stepRestGuard(),
			m.stepSuspend(),
			m.stepReport(),
		}},
		{Kind: kindSave, Steps: []op.Step{
			step(stepNameAdmit, g.admitSave, nil, nil),
			m.stepRestGuard(),
			m.stepSave(),
			m.stepReleased(),
			m.stepReport(),
		}},
		{Kind: kindRestore, Commit: stepNameForgetMemory, Steps: []op.Step{
			g.stepRested(),
			m.stepConnect(),
			m.stepName(),
			m.stepWake(),
			m.stepForgetMemory(),
			m.stepGoOn(),
			m.stepReport(),
		}},
		{Kind: kindRestorePaused, Steps: []op.Step{
			g.stepRested(),
			m.stepConnect(),
			m.stepName(),
			m.stepWake(),
			m.stepReport(),
		}},
		{Kind: kindDiscard, Commit: stepNameDiscard, Steps: []op.Step{
			m.stepName(),
			m.stepDiscard(),
			m.stepReport(),
		}},
		{Kind: kindResume, Commit: stepNameForgetMemory, Steps: []op.Step{
			g.stepBefore(),
			m.stepForgetMemory(),
			m.stepGoOn(),
			m.stepReport(),
		}},
	}
}

// pauseInput is the input of an op of a migration that has locked the instance.
func (m *machine) pauseInput(ctx context.Context, instanceRef, migrationID, volumeID string) (*pauseInput, error) {
	if _, err := uuid.Parse(migrationID); err != nil { // it is part of a file's name
		return nil, api.Errorf(api.CodeInvalidArgument, "migration_id is %.60q, which is no id", migrationID)
	}
	inst, err := m.Registry.Instance(ctx, instanceRef)
	if err != nil {
		return nil, err
	}
	if err := lockedFor(inst, migrationID); err != nil {
		return nil, err
	}
	in := &pauseInput{MigrationID: migrationID, Memory: m.memoryPath(inst.ID, migrationID)}
	if in.subject, err = m.subjectOf(ctx, inst); err != nil {
		return nil, err
	}
	in.Whole = true
	vol, err := m.Registry.Volume(ctx, volumeID)
	if err != nil {
		return nil, err
	}
	in.VolumeID, in.VolumeName = vol.ID, vol.Name
	atts, err := m.Registry.Attachments(ctx, vol.ID, inst.ID)
	if err != nil {
		return nil, err
	}
	if len(atts) == 0 {
		return nil, api.Errorf(api.CodeNotFound, "volume %s is not attached to instance %s", vol.Name, inst.Name)
	}
	in.Device, in.Location = atts[0].Device, atts[0].Location
	return in, nil
}

// lockedFor refuses what does not come from the migration that has locked the
// instance: everybody else would meet its guests in the middle of a move.
func lockedFor(inst api.Instance, migrationID string) error {
	switch {
	case inst.Locked && inst.LockedBy == migrationID:
		return nil
	case inst.Locked:
		return locked("save or restore", inst)
	}
	return forbidden("save or restore", inst.Name, "no migration has locked it; `volferryctl volume migrate VOLUME --pause-all` does this by itself")
}
