// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// cancel cancels a move. It does nothing if the volume is already at dst or the move has ended.
func (l *Loop) cancel(ctx context.Context, p *workflow.Pause, why *api.Error) error {
	_, err := l.cfg.Phases.Cancel(ctx, call(p), p.Migration.ID, why)
	switch api.CodeOf(err) { //nolint:exhaustive // these codes mean that the move has advanced
	case api.CodePastPointOfNoReturn, api.CodeNoMigration:
		return nil
	case "":
		l.cfg.Log.Warn("a move is cancelled", "migration", p.Migration.ID, "volume", p.Migration.VolumeName, "method", p.Migration.Method, "why", why)
	}
	return err
}

func (l *Loop) orCancel(ctx context.Context, p *workflow.Pause, err error, format string, args ...any) error {
	switch api.CodeOf(err) { //nolint:exhaustive // every other refusal is final
	case "":
		return nil
	case api.CodeConflict, api.CodeRegistryUnavailable, api.CodeInternal:
		return err
	}
	return l.cancel(ctx, p, hostop.About(api.AsError(err), format, args...))
}

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
