// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

// SharedMoves begins moves of volumes of several instances, which the registry leads.
type SharedMoves struct {
	Hosts KnownHosts
	// Pauses begins moves with all guests paused, LiveMoves moves while the guests write.
	Pauses, LiveMoves interface {
		Register(ctx context.Context, call store.Call, ref string, in api.MigrationTarget, present []string) (api.Migration, error)
	}
	Relay *Relay
}

// Begin begins a move of a volume: a live move if Method is api.MethodLive, else with all guests
// paused. If a needed host is not present, its error names the host and nothing changes.
func (r SharedMoves) Begin(ctx context.Context, call store.Call, ref string, in api.MigrationTarget) (api.Migration, error) {
	present, err := r.Relay.PresentHosts(ctx, r.Hosts)
	if err != nil {
		return api.Migration{}, err
	}
	if in.Method != api.MethodLive {
		return r.Pauses.Register(ctx, call, ref, in, present)
	}
	return r.LiveMoves.Register(ctx, call, ref, in, present)
}
