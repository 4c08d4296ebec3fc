// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// The subjects (hostop.Subject) of calls to the copy host. Other subjects are ids of instances and
// hosts.
const (
	workCopy  = "copy"
	workCheck = "check"
	workDrop  = "drop"
)

// mostAttempts is how often a call to a host is tried before the loop cancels the move. Saved
// guests cannot run meanwhile.
const mostAttempts = 5

// checkCopy makes the copy host check that it can copy, before anything changes.
func (l *Loop) checkCopy(ctx context.Context, p *workflow.Pause) error {
	l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: workCheck}, func(ctx context.Context) error {
		v, err := l.hosts(p).AskNow(ctx, checkCopyRequest(p))
		switch {
		case err != nil:
			return err
		case v.Failed != nil:
			return l.cancel(ctx, p, hostop.About(v.Failed, "cannot copy volume %s on host %s", p.Migration.VolumeName, p.CopyHost.Name))
		}
		_, err = l.cfg.Phases.Suspend(ctx, call(p), p.Migration.ID)
		return err
	})
	return nil
}

func (l *Loop) copy(ctx context.Context, p *workflow.Pause) error {
	l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: workCopy}, func(ctx context.Context) error {
		v, err := l.hosts(p).Ask(ctx, copyRequest(p))
		if err != nil {
			return err
		}
		switch {
		case v.Failed == nil:
			return l.flip(ctx, p, v.Op.Location)
		case v.Again && p.Attempt+1 < mostAttempts:
			if _, err := l.cfg.Results.SetCopy(ctx, call(p), p.Migration.ID, p.Phase, p.Attempt+1, p.DropEnd, nil); err != nil {
				return err
			}
			return v.Failed
		}
		return l.cancel(ctx, p, hostop.About(v.Failed, "cannot copy volume %s on host %s", p.Migration.VolumeName, p.CopyHost.Name))
	})
	return nil
}

// flip makes dst the volume's location. If the store refuses dst, for example because another
// volume uses it, flip cancels the move.
func (l *Loop) flip(ctx context.Context, p *workflow.Pause, dst *api.Location) error {
	if dst == nil {
		return l.cancel(ctx, p, api.Errorf(api.CodeInternal, "host %s has copied volume %s and does not say where to", p.CopyHost.Name, p.Migration.VolumeName))
	}
	_, err := l.cfg.Phases.Flip(ctx, call(p), p.Migration.ID, *dst)
	if err == nil {
		l.cfg.Log.Info("a volume was moved with all guests paused; they are woken", "migration", p.Migration.ID, "volume", p.Migration.VolumeName)
	}
	return l.orCancel(ctx, p, err, "volume %s cannot be at its destination", p.Migration.VolumeName)
}
