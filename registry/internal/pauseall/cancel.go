// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// Canceller cancels moves.
type Canceller interface {
	Cancel(ctx context.Context, call store.Call, ref string, why *api.Error) (workflow.Pause, error)
}

// Cancel cancels a move. It does nothing if the volume has moved since, or the move has ended.
func Cancel(ctx context.Context, s Canceller, log *slog.Logger, call store.Call, p *workflow.Pause, why *api.Error) error {
	_, err := s.Cancel(ctx, call, p.Migration.ID, why)
	switch api.CodeOf(err) { //nolint:exhaustive // those say that it went on meanwhile
	case api.CodePastPointOfNoReturn, api.CodeNoMigration:
		return nil
	case "":
		log.Warn("a move is cancelled", "migration", p.Migration.ID, "volume", p.Migration.VolumeName, "method", p.Migration.Method, "why", why)
	}
	return err
}

// Fenced returns the reason why a move cannot continue to dst because one of its hosts was fenced,
// nil if none was.
func Fenced(p *workflow.Pause) *api.Error {
	hosts := []workflow.PauseHost{p.CopyHost}
	for _, g := range p.Instances {
		hosts = append(hosts, g.Host)
	}
	for _, h := range hosts {
		if h.Fenced {
			return api.Errorf(api.CodeHypervisorUnavailable, "host %s was fenced before volume %s was moved", h.Name, p.Migration.VolumeName)
		}
	}
	return nil
}
