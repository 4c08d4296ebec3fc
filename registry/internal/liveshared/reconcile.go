// SPDX-License-Identifier: Apache-2.0

package liveshared

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/reconcile"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// New returns a loop that does nothing before it runs.
func New(c Config) *Loop {
	l := &Loop{cfg: c, background: &hostop.Background{Moves: "a move while all guests write", Log: c.Log}}
	l.Loop = reconcile.NewLoop("moves while all guests write", c.Every, c.Log, l.reconcile, l.background.Wait)
	l.hosts = &hostop.Client{Store: c.Store, Relay: c.Relay, Call: call, Every: l.Every()}
	return l
}

// reconcile brings every move as far as it can be brought now.
func (l *Loop) reconcile(ctx context.Context) error {
	moves, err := l.cfg.Store.OpenPauses(ctx)
	if err != nil {
		return err
	}
	for i := range moves {
		if p := &moves[i]; p.Live != nil && p.Phase != workflow.PauseDone {
			// A move that went on meanwhile is looked at with the next round.
			if err := l.advance(ctx, p); err != nil && api.CodeOf(err) != api.CodeConflict {
				return err
			}
		}
	}
	return nil
}
