// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// settleRest settles at once an instance that was not touched, and says so: no call to
// put it to rest was made since it got to its state, or the call can be taken back, or
// was refused. One that is suspended stands still with nothing to be restored; any
// other one is over.
func (l *Loop) settleRest(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance) (bool, error) {
	begun, err := l.restBegun(ctx, p, g, g.SaveAttempt)
	if begun || err != nil {
		return false, err
	}
	g.State = settled(g.State)
	return true, l.set(ctx, p, g)
}

// settled is what an instance is that was not touched since it got to a state.
func settled(state string) string {
	if state == workflow.PauseSuspended {
		return workflow.PauseReady
	}
	return workflow.PauseRestored
}

// restCall is the last call that may have put an instance to rest since it got to its
// state.
func restCall(p *workflow.Pause, g workflow.PauseInstance) hostop.Request {
	if g.State == workflow.PauseChecked {
		return suspendRequest(p, g)
	}
	return saveRequest(p, g) // a pending one may be an older version's, which saved at once
}

// restBegun reports whether a host may have begun to put an instance to rest when it was
// asked to for one of so many times after the first: a call that fails for the moment
// may have been begun all the same, whatever the next one is answered.
func (l *Loop) restBegun(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance, attempts int) (bool, error) {
	for g.SaveAttempt = g.SaveFrom; g.SaveAttempt <= attempts; g.SaveAttempt++ {
		if begun, err := l.hosts.Begun(ctx, restCall(p, g).Key); begun || err != nil {
			return begun, err
		}
	}
	return false, nil
}

// awaitRest waits until it is known whether an instance was put to rest: only then is
// it woken, so that the call cannot have its effect after that.
func (l *Loop) awaitRest(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance) error {
	v, err := l.hosts.Ask(ctx, restCall(p, g))
	if err != nil {
		return err
	}
	// A suspend that was undone has let its guest run. A save that was undone may have
	// left it in its file: that is looked at when it is restored.
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
