// SPDX-License-Identifier: Apache-2.0

package liveshared

import (
	"context"

	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/pauseall"
	"github.com/volferry/volferry/registry/internal/reconcile"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// New returns a loop; call Run to start it.
func New(c Config) *Loop {
	l := &Loop{cfg: c}
	l.background = hostop.NewBackground("a move while all guests write", c.Log, func() { l.LookSoon() })
	l.Loop = reconcile.NewLoop("moves while all guests write", c.Every, c.Log, l.reconcile, l.background.Wait)
	l.LookAfter(c.Moves.Changed)
	l.hosts = &hostop.Client{Tasks: c.Tasks, Relay: c.Relay, Call: call, Every: l.Every()}
	return l
}

// reconcile advances every move as far as possible now.
func (l *Loop) reconcile(ctx context.Context) error {
	return pauseall.Advance(ctx, l.cfg.Moves, func(ctx context.Context, p *workflow.Pause) error {
		if p.Live == nil || p.Phase == workflow.PauseDone {
			return nil
		}
		return l.advance(ctx, p)
	})
}
