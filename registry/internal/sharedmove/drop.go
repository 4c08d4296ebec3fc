// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// drop makes the copy host remove the image that p.DropEnd names: src of a completed move, or dst
// of a cancelled move. Do not call it while the move waits for an operator.
func (l *Loop) drop(ctx context.Context, p *workflow.Pause) error {
	if p.DropEnd == api.DropDst {
		made, err := l.mayBeMade(ctx, p)
		switch {
		case err != nil:
			return err
		case p.Live != nil && !p.LiveReady():
			return nil // a host may still write to dst
		case !made && l.background.Busy(hostop.Subject{Migration: p.Migration.ID, What: workCopy}):
			return nil // the copy may be about to be requested
		case !made:
			return l.dropped(ctx, p, nil)
		}
	}
	if p.CopyHost.Fenced {
		return l.dropped(ctx, p, api.Errorf(api.CodeHypervisorUnavailable, "what is left of the copy of volume %s was not removed: host %s is fenced", p.Migration.VolumeName, p.CopyHost.Name))
	}
	l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: workDrop}, func(ctx context.Context) error {
		v, err := l.hosts(p).Ask(ctx, dropRequest(p))
		switch {
		case err != nil:
			return err
		case v.Failed == nil:
			return l.dropped(ctx, p, nil)
		case v.Again:
			if _, err := l.cfg.Results.SetCopy(ctx, call(p), p.Migration.ID, p.Phase, p.Attempt+1, p.DropEnd, nil); err != nil {
				return err
			}
			return v.Failed // a later round tries again
		case p.DropEnd == api.DropSrc:
			return l.dropped(ctx, p, hostop.About(v.Failed, "volume %s was moved, and its source not deleted on host %s", p.Migration.VolumeName, p.CopyHost.Name))
		}
		// Another program may still write to dst: it stays reserved until an operator has checked.
		_, err = l.cfg.Results.SetCopy(ctx, call(p), p.Migration.ID, p.Phase, p.Attempt, p.DropEnd,
			hostop.About(v.Failed, "cannot remove the copy of volume %s on host %s", p.Migration.VolumeName, p.CopyHost.Name))
		return err
	})
	return nil
}

func (l *Loop) dropped(ctx context.Context, p *workflow.Pause, why *api.Error) error {
	_, err := l.cfg.Results.SetCopy(ctx, call(p), p.Migration.ID, p.Phase, p.Attempt, "", why)
	return err
}

func (l *Loop) mayBeMade(ctx context.Context, p *workflow.Pause) (bool, error) {
	verb := verbCopy
	if p.Live != nil {
		verb = verbMake
	}
	for attempt := range mostAttempts {
		if begun, err := l.hosts(p).Begun(ctx, hostop.Key(p.Migration.ID, verb, attempt)); begun || err != nil {
			return begun, err
		}
	}
	return false, nil
}
