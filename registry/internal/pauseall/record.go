// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// cancel leads a move back to src.
func (l *Loop) cancel(ctx context.Context, p *workflow.Pause, why *api.Error) error {
	_, err := l.cfg.Store.CancelPause(ctx, call, p.Migration.ID, why)
	switch api.CodeOf(err) { //nolint:exhaustive // those say that it went on meanwhile
	case api.CodePastPointOfNoReturn, api.CodeNoMigration:
		return nil
	case "":
		l.cfg.Log.Warn("a move with all guests paused is cancelled", "migration", p.Migration.ID, "volume", p.Migration.VolumeName, "why", why)
	}
	return err
}

// set records how far an instance is.
func (l *Loop) set(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance) error {
	_, err := l.cfg.Store.SetPauseInstance(ctx, call, p.Migration.ID, p.Phase, g)
	return err
}

// fenced is why a move cannot go on to dst: a host was lost before it was there.
func fenced(p *workflow.Pause) *api.Error {
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

// about is an error with what could not be done before it.
func about(e *api.Error, format string, args ...any) *api.Error {
	out := api.Errorf(e.Code, format+": %s", append(args, e.Message)...)
	out.Details = e.Details
	return out
}
