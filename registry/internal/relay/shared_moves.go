// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// SharedMoves begins the moves that the registry leads, of volumes that several instances have.
type SharedMoves struct {
	Store interface {
		KnownHosts
		RegisterLive(ctx context.Context, call store.Call, ref string, in api.MigrationTarget, present []string, lacks func(workflow.PauseHost) error) (api.Migration, error)
		RegisterPause(ctx context.Context, call store.Call, ref string, in api.MigrationTarget, present []string) (api.Migration, error)
	}
	// Relay knows which hosts are there, and what their daemons have announced.
	Relay *Relay
}

// Begin begins to move a volume: while all its guests write, if Method says so, else with all of
// them paused. Hosts that are needed and not there are named, and nothing is done; so is, for the
// former, one whose daemon cannot follow what its guests write, or not hold them back where that is
// asked for.
func (r SharedMoves) Begin(ctx context.Context, call store.Call, ref string, in api.MigrationTarget) (api.Migration, error) {
	present, err := r.Relay.PresentHosts(ctx, r.Store)
	if err != nil {
		return api.Migration{}, err
	}
	if in.Method != api.MethodLive {
		return r.Store.RegisterPause(ctx, call, ref, in, present)
	}
	needs := []string{protocol.LiveShared}
	if in.ThrottleWriters {
		needs = append(needs, protocol.ThrottleWriters)
	}
	return r.Store.RegisterLive(ctx, call, ref, in, present, func(host workflow.PauseHost) error {
		has, _ := r.Relay.Announcement(host.ID)
		return has.Check("the daemon of host "+host.Name, needs)
	})
}
