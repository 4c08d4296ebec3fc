// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// advance does the next possible steps of a move. For a live move it does only its pauses; package
// liveshared does the rest.
func (l *Loop) advance(ctx context.Context, p *workflow.Pause) error {
	switch p.Phase {
	case workflow.PauseChecking:
		if p.Live == nil {
			return l.check(ctx, p)
		}
	case workflow.PauseSuspending:
		return l.suspend(ctx, p)
	case workflow.PauseSaving:
		return l.save(ctx, p)
	case workflow.PauseCopying:
		if p.Live == nil {
			return l.copy(ctx, p)
		}
	case workflow.PauseAgain:
		_, err := l.resume(ctx, p)
		return err
	case workflow.PauseRestoring, workflow.PauseCancelling:
		return l.end(ctx, p)
	case workflow.PauseDone:
		return l.wakeAll(ctx, p)
	case workflow.PauseMaking, workflow.PauseTracking, workflow.PauseSwapping, workflow.PauseLast:
	}
	return nil
}

// copy makes the copy host copy the volume to dst, and commits afterwards.
func (l *Loop) copy(ctx context.Context, p *workflow.Pause) error {
	if gone := Fenced(p); gone != nil {
		return l.cancel(ctx, p, gone)
	}
	l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: workCopy}, func(ctx context.Context) error {
		v, err := l.hosts.Ask(ctx, copyRequest(p))
		if err != nil {
			return err
		}
		switch {
		case v.Failed == nil:
			return l.flip(ctx, p, v.Op.Location)
		case v.Again && p.Attempt+1 < mostAttempts:
			if _, err := l.cfg.Results.SetCopy(ctx, call, p.Migration.ID, p.Phase, p.Attempt+1, p.DropEnd, nil); err != nil {
				return err
			}
			return v.Failed
		}
		return l.cancel(ctx, p, hostop.About(v.Failed, "cannot copy volume %s on host %s", p.Migration.VolumeName, p.CopyHost.Name))
	})
	return nil
}

// flip makes dst the location of the volume. If dst cannot be, because it is taken or has another
// size, it cancels the move.
func (l *Loop) flip(ctx context.Context, p *workflow.Pause, dst *api.Location) error {
	if dst == nil {
		return l.cancel(ctx, p, api.Errorf(api.CodeInternal, "host %s has copied volume %s and does not say where to", p.CopyHost.Name, p.Migration.VolumeName))
	}
	_, err := l.cfg.Phases.Flip(ctx, call, p.Migration.ID, *dst)
	switch api.CodeOf(err) { //nolint:exhaustive // what else is refused stays refused
	case "":
		l.cfg.Log.Info("a volume was moved with all guests paused; they are woken", "migration", p.Migration.ID, "volume", p.Migration.VolumeName)
		return nil
	case api.CodeConflict, api.CodeRegistryUnavailable, api.CodeInternal:
		return err
	}
	return l.cancel(ctx, p, hostop.About(api.AsError(err), "volume %s cannot be at its destination", p.Migration.VolumeName))
}

// resume restores the instances, and reports whether it has just allowed the hosts to resume them.
func (l *Loop) resume(ctx context.Context, p *workflow.Pause) (bool, error) {
	if err := l.wakeAll(ctx, p); err != nil {
		return false, err
	}
	if !p.CanResume() {
		return false, nil
	}
	_, err := l.cfg.Phases.Resume(ctx, call, p.Migration.ID)
	return true, err
}

// end restores and resumes the instances, makes the copy host remove the other end of the move, and
// then finishes the move.
func (l *Loop) end(ctx context.Context, p *workflow.Pause) error {
	if resumed, err := l.resume(ctx, p); resumed || err != nil {
		return err
	}
	awake := p.Resuming
	for _, g := range p.Instances {
		awake = awake && (g.State == workflow.PauseRestored || g.Lost)
	}
	switch {
	case p.DropEnd != "" && p.Error != nil:
		return nil //nolint:nilerr // it waits for an operator
	case p.DropEnd == api.DropDst || p.DropEnd == api.DropSrc && awake:
		return l.drop(ctx, p)
	case !awake:
		return nil
	}
	done, err := l.cfg.Phases.Finish(ctx, call, p.Migration.ID)
	if err == nil {
		l.cfg.Log.Info("a move with all guests paused is over", "migration", p.Migration.ID, "volume", p.Migration.VolumeName, "state", done.Migration.State)
	}
	return err
}
