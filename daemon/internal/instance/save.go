// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// BeginSave saves an instance for the migration that has locked it: its RAM goes to a save image,
// no process has the volume open, and its start is refused (guard) until BeginResume. An instance
// that is off is only guarded.
func (m *Manager) BeginSave(ctx context.Context, opID, instanceRef string, in api.InstanceSave) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: subject.KindSave, Body: instanceBody{instanceRef, in},
		Decide: func(ctx context.Context) (request.Input, error) {
			input, err := m.env.Memory.PauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
			if err != nil {
				return nil, err
			}
			input.Suspended = true
			_, err = m.env.Memory.CheckSave(ctx, input)
			return input, err
		},
	})
}
