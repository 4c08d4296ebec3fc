// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// wakeAll advances every instance by a step. It restores a host's instances one after the other and
// leaves them paused; after Pauses.Resume it resumes all at once. An instance that waits for an
// operator does not delay the others.
func (l *Loop) wakeAll(ctx context.Context, p *workflow.Pause) error {
	begun := map[string]bool{} // by host
	for _, g := range p.Instances {
		switch {
		case g.State == workflow.PauseRestored, g.Error != nil, g.State == workflow.PauseReady && !p.Resuming && !g.Host.Fenced:
			continue
		case !p.MayWake(g.Host.ID):
			continue // the bitmap in the guest's process must be removed first
		case g.State == workflow.PauseSaved && begun[g.Host.ID]:
			continue
		}
		begun[g.Host.ID] = begun[g.Host.ID] || g.State == workflow.PauseSaved && !g.Host.Fenced
		if err := l.wake(ctx, p, g); err != nil {
			return err
		}
	}
	return nil
}

func (l *Loop) wake(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance) error {
	if l.background.Busy(hostop.Subject{Migration: p.Migration.ID, What: g.ID}) {
		return nil // it may be about to be saved
	}
	switch {
	case g.Lost && !g.Attached:
		// It cannot have the volume any more, so there is nothing to wait for.
		g.State = workflow.PauseRestored
		return l.set(ctx, p, g)
	case g.Lost && g.Host.Fenced:
		return nil // the others have continued without it
	case g.Host.Fenced && (g.State == workflow.PausePending || g.State == workflow.PauseChecked):
		settled, err := l.settleRest(ctx, p, g)
		if settled || err != nil {
			return err
		}
	}
	switch {
	case g.Host.Fenced:
		g.Lost = true
		return l.set(ctx, p, g)
	case g.State == workflow.PauseReady:
		return l.inBackground(ctx, p, g, l.resumeOne)
	case g.State == workflow.PauseSaved:
		return l.inBackground(ctx, p, g, l.restoreOne)
	}
	settled, err := l.settleRest(ctx, p, g)
	if settled || err != nil {
		return err
	}
	return l.inBackground(ctx, p, g, l.awaitRest)
}

func (l *Loop) inBackground(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance, do func(context.Context, *workflow.Pause, workflow.PauseInstance) error) error {
	l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: g.ID}, func(ctx context.Context) error { return do(ctx, p, g) })
	return nil
}

// restoreOne makes a host restore an instance and leave it paused, or discard the instance's
// memory.
func (l *Loop) restoreOne(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance) error {
	v, err := l.hosts(p).Ask(ctx, restoreRequest(p, g))
	if err != nil {
		return err
	}
	return l.woken(ctx, p, g, v, workflow.PauseReady, "restore")
}

func (l *Loop) resumeOne(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance) error {
	v, err := l.hosts(p).Ask(ctx, resumeRequest(p, g))
	if err != nil {
		return err
	}
	return l.woken(ctx, p, g, v, workflow.PauseRestored, "resume")
}

// restoreTries bounds the attempts to restore an instance. After the last attempt the others are
// resumed. If one of them writes to a shared volume, the instance's memory cannot be restored any
// more.
const restoreTries = 3

func (l *Loop) woken(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance, v hostop.Outcome, to, verb string) error {
	switch {
	case v.Failed == nil:
		g.State, g.Took = to, v.Op.Took()
		return l.set(ctx, p, g)
	case v.Again:
		g.Attempt++
		if err := l.set(ctx, p, g); err != nil {
			return err
		}
		return v.Failed // a later round tries again
	case to == workflow.PauseReady && v.Failed.Code != api.CodeStateForbidden && g.Attempt+1 < restoreTries:
		// The cause may be temporary, and the saved memory is valid while the other guests are
		// paused. Only state_forbidden is final.
		l.cfg.Log.Warn("an instance was not restored; it is tried again while the others stand still", "migration", p.Migration.ID, "instance", g.Name, "why", v.Failed)
		g.Attempt++
		return l.set(ctx, p, g)
	}
	g.Error = refusal(g, verb, v.Failed)
	return l.set(ctx, p, g)
}
