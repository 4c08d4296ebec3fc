// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// askHosts makes the calls to hosts that the present phase requires (Pause.LiveNext).
func (l *Loop) askHosts(ctx context.Context, p *workflow.Pause) {
	for _, h := range p.Live.Hosts {
		c, left := p.LiveNext(h)
		if !left || h.Error != nil {
			continue
		}
		if h.State == workflow.LiveAsked && h.Call != c {
			l.hasten(ctx, p, h)
		}
		l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: h.ID}, func(ctx context.Context) error { return l.callHost(ctx, p, h, c) })
	}
}

// mostPauses is a factor: after mostPauses times the allowed pause, the move is cancelled and all
// guests are resumed at src.
const mostPauses = 3

func tooLong(p *workflow.Pause) *api.Error {
	if most := mostPauses * p.Live.MaxPause; time.Since(p.StoppedAt) > most {
		return api.Errorf(api.CodePauseTooLong, "the guests of volume %s have stood still for more than %s before it was moved; all go on where they were", p.Migration.VolumeName, most)
	}
	return fenced(p)
}

func notResumed(p *workflow.Pause) *api.Error {
	for _, g := range p.Instances {
		if g.Error != nil {
			return hostop.About(g.Error, "the pause of volume %s was called off, and instance %s does not go on", p.Migration.VolumeName, g.Name)
		}
	}
	return fenced(p)
}

// beginMaking begins to make dst. It cancels the move if tooMuchRAM refuses.
func (l *Loop) beginMaking(ctx context.Context, p *workflow.Pause) error {
	ram, err := l.standstills(ctx, p)
	if err != nil {
		return err
	}
	if why := tooMuchRAM(p, ram); why != nil {
		return l.cancel(ctx, p, why)
	}
	return l.enter(ctx, p, workflow.PauseMaking)
}

// made repeats the call that made dst, because the answer has dst's location, and begins to track
// the guests' writes.
func (l *Loop) made(ctx context.Context, p *workflow.Pause) error {
	l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: p.CopyHost.ID}, func(ctx context.Context) error {
		for _, h := range p.Live.Hosts {
			if h.ID == p.CopyHost.ID {
				return l.madeAt(ctx, p, h)
			}
		}
		return nil
	})
	return nil
}

func (l *Loop) madeAt(ctx context.Context, p *workflow.Pause, copier workflow.LiveHost) error {
	v, err := l.hosts(p).Ask(ctx, liveRequest(p, copier, copier.Call))
	switch {
	case err != nil:
		return err
	case v.Failed != nil || v.Op.Location == nil:
		return l.cancel(ctx, p, api.Errorf(api.CodeInternal, "host %s has made the destination of volume %s and does not say where", copier.Name, p.Migration.VolumeName))
	}
	_, err = l.cfg.LiveMoves.Made(ctx, call(p), p.Migration.ID, *v.Op.Location)
	return l.orCancel(ctx, p, err, "volume %s cannot be at its destination", p.Migration.VolumeName)
}

// afterRound suspends the guests if copying the remaining dirty units fits into the allowed pause.
// Otherwise it begins another round, or cancels the move if rounds make no progress.
func (l *Loop) afterRound(ctx context.Context, p *workflow.Pause) error {
	ram, err := l.standstills(ctx, p)
	if err != nil {
		return err
	}
	switch {
	case mayPause(p.Live, ram):
		return l.enter(ctx, p, workflow.PauseSuspending)
	case p.Live.Slow >= workflow.LiveStalledRounds:
		return l.cancel(ctx, p, outrun(p))
	}
	return l.enter(ctx, p, workflow.PauseSwapping)
}

// trackAgain continues after a bitmap was lost or a pause was called off: it resumes suspended
// guests, and begins to track the guests' writes again.
func (l *Loop) trackAgain(ctx context.Context, p *workflow.Pause) error {
	if resumed, err := l.resume(ctx, p); resumed || err != nil || !p.LiveReady() {
		return err
	}
	return l.enter(ctx, p, workflow.PauseTracking)
}

func (l *Loop) flipSaved(ctx context.Context, p *workflow.Pause) error {
	for _, g := range p.Instances {
		if g.State != workflow.PauseSaved {
			return nil
		}
	}
	_, err := l.cfg.Phases.Flip(ctx, call(p), p.Migration.ID, p.Migration.Dst)
	return l.orCancel(ctx, p, err, "volume %s cannot be at its destination", p.Migration.VolumeName)
}

func to(phase workflow.PausePhase) func(*Loop, context.Context, *workflow.Pause) error {
	return func(l *Loop, ctx context.Context, p *workflow.Pause) error { return l.enter(ctx, p, phase) }
}

func (l *Loop) enter(ctx context.Context, p *workflow.Pause, to workflow.PausePhase) error {
	_, err := l.cfg.LiveMoves.Pass(ctx, call(p), p.Migration.ID, p.Phase, to)
	return l.orCancel(ctx, p, err, "volume %s cannot be moved on", p.Migration.VolumeName)
}
