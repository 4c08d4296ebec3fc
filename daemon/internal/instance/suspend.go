// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// CheckSave makes only the checks of BeginSuspend and BeginSave.
func (m *Manager) CheckSave(ctx context.Context, instanceRef string, in api.InstanceSuspend) error {
	input, err := m.env.Memory.PauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
	if err != nil {
		return err
	}
	_, err = m.env.Memory.CheckSuspend(ctx, input)
	return err
}

// BeginSuspend suspends an instance for the migration that has locked it, and has its start
// refused (guard), until BeginResume. All guests of the volume are suspended before any is saved.
// An instance that does not run is only guarded.
func (m *Manager) BeginSuspend(ctx context.Context, opID, instanceRef string, in api.InstanceSuspend) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: subject.KindSuspend, Body: instanceBody{instanceRef, in},
		Decide: func(ctx context.Context) (request.Input, error) {
			input, err := m.env.Memory.PauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
			if err != nil {
				return nil, err
			}
			_, err = m.env.Memory.CheckSuspend(ctx, input)
			return input, err
		},
	})
}
