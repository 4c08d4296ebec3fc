// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// BeginResume returns an instance that was suspended for a migration to its earlier state:
// running, paused or off. Save image and guard are removed before the guest runs.
func (m *Manager) BeginResume(ctx context.Context, opID, instanceRef string, in api.InstanceResume) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: subject.KindResume, Body: instanceBody{instanceRef, in},
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
