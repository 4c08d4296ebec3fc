// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/reconcile"
)

// New returns a loop; call Run to start it.
func New(c Config) *Loop {
	l := &Loop{cfg: c}
	l.background = hostop.NewBackground("a move of a shared volume", c.Log, func() { l.LookSoon() })
	l.Loop = reconcile.NewLoop("moves of shared volumes", c.Every, c.Log, l.reconcile, l.background.Wait)
	l.LookAfter(c.Moves.Changed)
	return l
}

// reconcile advances every open move as far as possible now. A conflict means that the move has
// changed since it was read; the next call tries again.
func (l *Loop) reconcile(ctx context.Context) error {
	open, err := l.cfg.Moves.Open(ctx)
	if err != nil {
		return err
	}
	for i := range open {
		if err := l.advance(ctx, &open[i]); err != nil && api.CodeOf(err) != api.CodeConflict {
			return err
		}
	}
	return nil
}
