// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// BeginResume lets an instance that was suspended for a migration go on as it was:
// running, paused or off. Its save image and its guard are removed before it runs.
func (m *Manager) BeginResume(ctx context.Context, opID, instanceRef string, in api.InstanceResume) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: steps.KindResume, Body: instanceBody{instanceRef, in},
		Decide: func(ctx context.Context) (request.Input, error) {
			input, err := m.env.PauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
			if err != nil {
				return nil, err
			}
			input.Location = in.Location
			return input, nil
		},
	})
}
