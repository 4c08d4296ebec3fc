// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// SharedMoves begins moves of volumes of several instances, which the registry leads.
type SharedMoves struct {
	Hosts  KnownHosts
	Pauses interface {
		Register(ctx context.Context, call store.Call, ref string, in api.MigrationTarget, present []string) (api.Migration, error)
	}
	LiveMoves interface {
		Register(ctx context.Context, call store.Call, ref string, in api.MigrationTarget, present []string, lacks func(workflow.PauseHost) error) (api.Migration, error)
	}
	// Relay knows which hosts are present, and their daemons' announcements.
	Relay *Relay
}

// Begin begins a move of a volume: a live move if Method is api.MethodLive, else with all guests
// paused. If a needed host is not present, its error names the host and nothing changes. The same
// holds for a live move if a daemon cannot track its guests' writes, or cannot throttle them if
// requested.
func (r SharedMoves) Begin(ctx context.Context, call store.Call, ref string, in api.MigrationTarget) (api.Migration, error) {
	present, err := r.Relay.PresentHosts(ctx, r.Hosts)
	if err != nil {
		return api.Migration{}, err
	}
	if in.Method != api.MethodLive {
		return r.Pauses.Register(ctx, call, ref, in, present)
	}
	needs := []string{protocol.LiveShared}
	if in.ThrottleWriters {
		needs = append(needs, protocol.ThrottleWriters)
	}
	return r.LiveMoves.Register(ctx, call, ref, in, present, func(host workflow.PauseHost) error {
		has, _ := r.Relay.Announcement(host.ID)
		return has.Check("the daemon of host "+host.Name, needs)
	})
}
