// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// BeginRestore restores an instance that was saved for a migration, with the volume at
// in.Location. The instance stays paused and guarded and keeps its save image until BeginResume,
// because other guests of the volume may not be restored yet. An instance that was not saved does
// not change. After an impossible restore (needs_operator) the instance stays saved and guarded,
// and the restore may be repeated. With DiscardMemory the instance is off afterwards.
func (m *Manager) BeginRestore(ctx context.Context, opID, instanceRef string, in api.InstanceRestore) (api.Instance, error) {
	kind := subject.KindRestorePaused
	if in.DiscardMemory {
		kind = subject.KindDiscard
	}
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: kind, Body: instanceBody{instanceRef, in},
		Decide: func(ctx context.Context) (request.Input, error) {
			input, err := m.env.Memory.PauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
			if err != nil {
				return nil, err
			}
			input.Location = in.Location
			return input, nil
		},
	})
}

// WakingSteps returns the steps of a restore during which the guest may be paused.
func WakingSteps() []string { return memory.WakingSteps() }
