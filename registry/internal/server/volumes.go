// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

type volumeAPI struct {
	volumes    *store.Volumes
	migrations *store.Migrations
	moves      relay.SharedMoves
	forward    *forwarder
	targets    *targets
}

// forget removes a volume from the registry; its bytes stay on the host.
func (s *volumeAPI) forget(ctx context.Context, call store.Call, ref string, _ api.VolumeForget) (api.Volume, error) {
	return s.volumes.Forget(ctx, call, ref)
}
