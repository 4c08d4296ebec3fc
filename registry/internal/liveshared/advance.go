// SPDX-License-Identifier: Apache-2.0

package liveshared

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/pauseall"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// mostPauses times the allowed pause is the time after which a pause is cancelled and all guests
// are resumed at src.
const mostPauses = 3

// advance makes the calls of the present phase, and passes its barrier when all hosts have ended
// them.
func (l *Loop) advance(ctx context.Context, p *workflow.Pause) error {
	if why := hopeless(p); why != nil {
		return l.cancel(ctx, p, why)
	}
	for _, h := range p.Live.Hosts {
		c, left := p.LiveNext(h)
		if !left || h.Error != nil {
			continue
		}
		if h.State == workflow.LiveAsked && h.Call != c {
			l.hasten(ctx, p, h)
		}
		l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: h.ID}, func(ctx context.Context) error { return l.bring(ctx, p, h, c) })
	}
	if !p.LiveReady() {
		return nil
	}
	return l.pass(ctx, p)
}

// hopeless returns the reason why a move must return to src, nil if it need not.
func hopeless(p *workflow.Pause) *api.Error {
	switch p.Phase {
	case workflow.PauseRestoring, workflow.PauseCancelling, workflow.PauseDone:
		return nil
	case workflow.PauseLast, workflow.PauseSaving:
		if most := mostPauses * p.Live.MaxPause; time.Since(p.StoppedAt) > most {
			return api.Errorf(api.CodePauseTooLong, "the guests of volume %s have stood still for more than %s before it was moved; all go on where they were", p.Migration.VolumeName, most)
		}
	case workflow.PauseAgain:
		for _, g := range p.Instances {
			if g.Error != nil {
				return hostop.About(g.Error, "the pause of volume %s was called off, and instance %s does not go on", p.Migration.VolumeName, g.Name)
			}
		}
	case workflow.PauseChecking, workflow.PauseMaking, workflow.PauseTracking, workflow.PauseCopying, workflow.PauseSwapping, workflow.PauseSuspending:
	}
	return pauseall.Fenced(p)
}

// pass passes the barrier of a phase after all hosts.
func (l *Loop) pass(ctx context.Context, p *workflow.Pause) error {
	switch p.Phase {
	case workflow.PauseChecking:
		ram, err := l.standstills(ctx, p)
		if err != nil {
			return err
		}
		if why := tooMuchRAM(p, ram); why != nil {
			return l.cancel(ctx, p, why)
		}
		return l.enter(ctx, p, workflow.PauseMaking)
	case workflow.PauseMaking:
		l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: p.CopyHost.ID}, func(ctx context.Context) error { return l.made(ctx, p) })
		return nil
	case workflow.PauseTracking, workflow.PauseSwapping:
		return l.enter(ctx, p, workflow.PauseCopying)
	case workflow.PauseCopying:
		ram, err := l.standstills(ctx, p)
		if err != nil {
			return err
		}
		if mayPause(p.Live, ram) {
			return l.enter(ctx, p, workflow.PauseSuspending)
		}
		if p.Live.Slow >= workflow.LiveStalledRounds {
			return l.cancel(ctx, p, outrun(p))
		}
		return l.enter(ctx, p, workflow.PauseSwapping)
	case workflow.PauseAgain:
		return l.enter(ctx, p, workflow.PauseTracking)
	case workflow.PauseLast:
		return l.enter(ctx, p, workflow.PauseSaving)
	case workflow.PauseSaving:
		return l.flip(ctx, p)
	case workflow.PauseSuspending, workflow.PauseRestoring, workflow.PauseCancelling, workflow.PauseDone:
	}
	return nil
}

func (l *Loop) enter(ctx context.Context, p *workflow.Pause, to workflow.PausePhase) error {
	_, err := l.cfg.LiveMoves.Pass(ctx, call, p.Migration.ID, p.Phase, to)
	return l.orCancel(ctx, p, err, "volume %s cannot be moved on", p.Migration.VolumeName)
}

// made begins tracking once dst exists; the copy host repeats its location.
func (l *Loop) made(ctx context.Context, p *workflow.Pause) error {
	for _, h := range p.Live.Hosts {
		if h.ID != p.CopyHost.ID {
			continue
		}
		v, err := l.hosts.Ask(ctx, request(p, h, h.Call))
		switch {
		case err != nil:
			return err
		case v.Failed != nil || v.Op.Location == nil:
			return l.cancel(ctx, p, api.Errorf(api.CodeInternal, "host %s has made the destination of volume %s and does not say where", h.Name, p.Migration.VolumeName))
		}
		_, err = l.cfg.LiveMoves.Made(ctx, call, p.Migration.ID, *v.Op.Location)
		return l.orCancel(ctx, p, err, "volume %s cannot be at its destination", p.Migration.VolumeName)
	}
	return nil
}

// flip commits the move to dst, once all guests are saved.
func (l *Loop) flip(ctx context.Context, p *workflow.Pause) error {
	for _, g := range p.Instances {
		if g.State != workflow.PauseSaved {
			return nil
		}
	}
	_, err := l.cfg.Phases.Flip(ctx, call, p.Migration.ID, p.Migration.Dst)
	return l.orCancel(ctx, p, err, "volume %s cannot be at its destination", p.Migration.VolumeName)
}

// orCancel cancels a move if err is permanent.
func (l *Loop) orCancel(ctx context.Context, p *workflow.Pause, err error, format string, args ...any) error {
	switch api.CodeOf(err) { //nolint:exhaustive // what else is refused stays refused
	case "":
		return nil
	case api.CodeConflict, api.CodeRegistryUnavailable, api.CodeInternal:
		return err
	}
	return l.cancel(ctx, p, hostop.About(api.AsError(err), format, args...))
}
