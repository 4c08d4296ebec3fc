// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// LiveMoves begins moves while all guests write, for those who ask for one.
type LiveMoves struct {
	Store interface {
		KnownHosts
		RegisterLive(ctx context.Context, call store.Call, ref string, in api.MigrationTarget, present []string, lacks func(workflow.PauseHost) error) (api.Migration, error)
	}
	// Relay knows which hosts are there, and what their daemons have announced.
	Relay *Relay
}

// Begin begins to move a volume while all its guests write. A host whose daemon cannot follow what
// its guests write, or not hold them back where that is asked for, is named, and nothing is done.
func (r LiveMoves) Begin(ctx context.Context, call store.Call, ref string, in api.MigrationTarget) (api.Migration, error) {
	present, err := r.Relay.PresentHosts(ctx, r.Store)
	if err != nil {
		return api.Migration{}, err
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
