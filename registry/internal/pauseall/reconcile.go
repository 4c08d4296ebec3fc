// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/reconcile"
)

// New returns a loop that does nothing before it runs.
func New(c Config) *Loop {
	l := &Loop{cfg: c}
	l.Loop = reconcile.NewLoop("moves with all guests paused", c.Every, c.Log, l.reconcile, l.queue.Wait)
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
