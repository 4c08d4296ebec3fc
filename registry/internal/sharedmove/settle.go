// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// settleRest reports whether the next call about an instance, to suspend or to save it, was never
// begun. It withdraws a call that the host has not fetched. Without a begun call there is nothing
// to restore: a suspended instance becomes ready, and any other becomes restored.
func (l *Loop) settleRest(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance) (bool, error) {
	begun, err := l.restBegun(ctx, p, g, g.SaveAttempt)
	if begun || err != nil {
		return false, err
	}
	g.State = settled(g.State)
	return true, l.set(ctx, p, g)
}

func settled(state string) string {
	if state == workflow.PauseSuspended {
		return workflow.PauseReady
	}
	return workflow.PauseRestored
}

// restCall returns the call that takes an instance out of its present state: suspend for a checked
// instance, else save. A pending instance has had no such call.
func restCall(p *workflow.Pause, g workflow.PauseInstance) hostop.Request {
	if g.State == workflow.PauseChecked {
		return suspendRequest(p, g)
	}
	return saveRequest(p, g)
}

// restBegun reports whether a host may have begun restCall in an attempt of this pause, up to the
// given one. A call that failed temporarily counts as begun, whatever the answer to the next
// attempt.
func (l *Loop) restBegun(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance, attempts int) (bool, error) {
	for g.SaveAttempt = g.SaveFrom; g.SaveAttempt <= attempts; g.SaveAttempt++ {
		if begun, err := l.hosts(p).Begun(ctx, restCall(p, g).Key); begun || err != nil {
			return begun, err
		}
	}
	return false, nil
}

// awaitRest waits until it is known whether an instance was suspended or saved. If the instance
// were restored before, the call in progress could still suspend or save it afterwards.
func (l *Loop) awaitRest(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance) error {
	v, err := l.hosts(p).Ask(ctx, restCall(p, g))
	if err != nil {
		return err
	}
	// An undone suspend has resumed its guest. An undone save may have left its save image, which
	// restoring will check.
	untouched := v.Untouched || g.State == workflow.PauseChecked && v.Op.State == api.OpUndone
	if v.Failed != nil && untouched {
		before, err := l.restBegun(ctx, p, g, g.SaveAttempt-1)
		if err != nil {
			return err
		}
		untouched = !before
	}
	switch {
	case v.Failed != nil && untouched:
		g.State = settled(g.State)
	case g.State == workflow.PauseChecked:
		g.State = workflow.PauseSuspended
	default:
		g.State = workflow.PauseSaved
	}
	return l.set(ctx, p, g)
}
