// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// PauseInput is the input of an instance's ops for a migration with all guests paused.
type PauseInput struct {
	subject.Subject
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
	VolumeName  string `json:"volume_name"`
	// Device is the target of the volume's disk. Location is the volume's present location or, for
	// a restore, its future one.
	Device   string       `json:"device"`
	Location api.Location `json:"location"`
	Memory   string       `json:"memory"`
	// Generation is the volume's generation in the registry at the request, or 0 in the journal of
	// an older program. For a request that wakes the instance it is the generation at Location.
	Generation int64 `json:"generation,omitempty"`
	// Suspended is true for a save if an earlier op has suspended and guarded the instance: the
	// save's undo does not resume it.
	Suspended bool `json:"suspended,omitempty"`
}

// Owner returns the owner of the guard.
func (in *PauseInput) Owner() string { return guard.OwnerPause + in.MigrationID }

func (in *PauseInput) reason() string {
	return fmt.Sprintf("instance %s is saved while volume %s moves with all its guests paused; `%s` says how far it is",
		in.InstanceName, in.VolumeName, shell.Line("volferryctl", "migration", "show", in.MigrationID))
}

// SaveImagePath returns the path of an instance's save image for a migration.
func (e *Env) SaveImagePath(instanceID, migrationID string) string {
	return filepath.Join(e.cfg.SaveDir, instanceID+"."+migrationID+".ram")
}

// PauseInput returns the input of an op for a migration. It refuses a migration that has not
// locked the instance.
func (e *Env) PauseInput(ctx context.Context, instanceRef, migrationID, volumeID string) (*PauseInput, error) {
	if _, err := uuid.Parse(migrationID); err != nil { // part of a file name
		return nil, api.Errorf(api.CodeInvalidArgument, "migration_id is %.60q, which is no id", migrationID)
	}
	inst, err := e.registry.Instance(ctx, instanceRef)
	if err != nil {
		return nil, err
	}
	if err := lockedFor(inst, migrationID); err != nil {
		return nil, err
	}
	in := &PauseInput{MigrationID: migrationID, Memory: e.SaveImagePath(inst.ID, migrationID)}
	if in.Subject, err = e.subject.SubjectOf(ctx, inst); err != nil {
		return nil, err
	}
	in.Whole = true
	vol, err := e.registry.Volume(ctx, volumeID)
	if err != nil {
		return nil, err
	}
	in.VolumeID, in.VolumeName, in.Generation = vol.ID, vol.Name, vol.Generation
	atts, err := e.registry.Attachments(ctx, vol.ID, inst.ID)
	if err != nil {
		return nil, err
	}
	if len(atts) == 0 {
		return nil, api.Errorf(api.CodeNotFound, "volume %s is not attached to instance %s", vol.Name, inst.Name)
	}
	in.Device, in.Location = atts[0].Device, atts[0].Location
	return in, nil
}

// lockedFor refuses a migration that has not locked the instance: another move may have paused the
// guests.
func lockedFor(inst api.Instance, migrationID string) error {
	switch {
	case inst.Locked && inst.LockedBy == migrationID:
		return nil
	case inst.Locked:
		return subject.Locked("save or restore", inst)
	}
	return subject.Forbidden("save or restore", inst.Name, "no migration has locked it; `volferryctl volume migrate VOLUME --pause-all` does this by itself")
}
