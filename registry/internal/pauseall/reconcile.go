// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/reconcile"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// New returns a loop; call Run to start it.
func New(c Config) *Loop {
	l := &Loop{cfg: c}
	l.background = hostop.NewBackground("a move with all guests paused", c.Log, func() { l.LookSoon() })
	l.Loop = reconcile.NewLoop("moves with all guests paused", c.Every, c.Log, l.reconcile, l.background.Wait)
	l.LookAfter(c.Moves.Changed)
	l.hosts = &hostop.Client{Tasks: c.Tasks, Relay: c.Relay, Call: call, Every: l.Every()}
	return l
}

// reconcile advances every move as far as possible now.
func (l *Loop) reconcile(ctx context.Context) error {
	return Advance(ctx, l.cfg.Moves, l.advance)
}

// Advance calls advance for every open move. After a conflict, which means that the move has
// changed since, the next look tries again.
func Advance(ctx context.Context, moves Moves, advance func(context.Context, *workflow.Pause) error) error {
	open, err := moves.Open(ctx)
	if err != nil {
		return err
	}
	for i := range open {
		if err := advance(ctx, &open[i]); err != nil && api.CodeOf(err) != api.CodeConflict {
			return err
		}
	}
	return nil
}
