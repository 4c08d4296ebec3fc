// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// settleRest ends the work on an instance that was neither suspended nor saved in its present
// state, and reports whether it did: no such call was made, or the call was withdrawn or refused.
// A suspended instance becomes ready, because there is nothing to restore. Any other becomes
// restored.
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

// restCall returns the last call that may have suspended or saved an instance in its present
// state. No such call exists for a pending instance.
func restCall(p *workflow.Pause, g workflow.PauseInstance) hostop.Request {
	if g.State == workflow.PauseChecked {
		return suspendRequest(p, g)
	}
	return saveRequest(p, g)
}

// restBegun reports whether a host may have begun to suspend or save an instance in one of the
// attempts. A call that failed temporarily counts as begun, whatever the answer to the next
// attempt.
func (l *Loop) restBegun(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance, attempts int) (bool, error) {
	for g.SaveAttempt = g.SaveFrom; g.SaveAttempt <= attempts; g.SaveAttempt++ {
		if begun, err := l.hosts(p).Begun(ctx, restCall(p, g).Key); begun || err != nil {
			return begun, err
		}
	}
	return false, nil
}

// awaitRest waits until it is known whether an instance was suspended or saved. If it were
// restored earlier, the call in progress could suspend or save it afterwards.
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
