// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// resume restores the instances (wakeAll). It returns true if it has just allowed the hosts to
// resume all.
func (l *Loop) resume(ctx context.Context, p *workflow.Pause) (bool, error) {
	if err := l.wakeAll(ctx, p); err != nil {
		return false, err
	}
	if !p.CanResume() {
		return false, nil
	}
	_, err := l.cfg.Phases.Resume(ctx, call(p), p.Migration.ID)
	return true, err
}

// end restores and resumes the instances, makes the copy host remove the image that p.DropEnd
// names, and then finishes the move. It may remove dst before the instances are resumed.
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
	done, err := l.cfg.Phases.Finish(ctx, call(p), p.Migration.ID)
	if err == nil {
		l.cfg.Log.Info("a move with all guests paused is over", "migration", p.Migration.ID, "volume", p.Migration.VolumeName, "state", done.Migration.State)
	}
	return err
}
