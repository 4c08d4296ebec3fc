// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/reconcile"
)

// New returns a loop that does nothing before it runs.
func New(c Config) *Loop {
	l := &Loop{cfg: c, background: &hostop.Background{Moves: "a move with all guests paused", Log: c.Log}}
	l.Loop = reconcile.NewLoop("moves with all guests paused", c.Every, c.Log, l.reconcile, l.background.Wait)
	l.hosts = &hostop.Client{Store: c.Store, Relay: c.Relay, Call: call, Every: l.Every()}
	return l
}

// reconcile brings every move as far as it can be brought now.
func (l *Loop) reconcile(ctx context.Context) error {
	pauses, err := l.cfg.Store.OpenPauses(ctx)
	if err != nil {
		return err
	}
	for i := range pauses {
		// A move that went on meanwhile is looked at with the next round.
		if err := l.advance(ctx, &pauses[i]); err != nil && api.CodeOf(err) != api.CodeConflict {
			return err
		}
	}
	return nil
}
