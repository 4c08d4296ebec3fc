// SPDX-License-Identifier: Apache-2.0

package hostop

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/reconcile"
)

// Subject is what a loop asks about one call after the other: something of a migration.
type Subject struct{ Migration, What string }

// Background makes the calls that go on beside a loop, for each subject one at a time.
type Background struct {
	moves string
	log   *slog.Logger
	queue reconcile.WorkQueue[Subject]
}

// NewBackground returns a Background. Moves says in the singular what the loop advances, for the
// log; look has the loop look again when a call has ended for which it had another one.
func NewBackground(moves string, log *slog.Logger, look func()) *Background {
	return &Background{moves: moves, log: log, queue: reconcile.WorkQueue[Subject]{Ended: look}}
}

// Go runs one call about a subject, if none is on its way and its turn has come. A conflict
// means that the move went on meanwhile. Any other trouble is looked at again with a later
// look of the loop.
func (b *Background) Go(ctx context.Context, about Subject, do func(context.Context) error) {
	b.queue.Go(about, func() error {
		err := do(ctx)
		switch {
		case err == nil, api.CodeOf(err) == api.CodeConflict:
			b.queue.Settled(about)
			return nil
		case ctx.Err() == nil:
			b.log.Warn("a call of "+b.moves+" is made again", "migration", about.Migration, "about", about.What, "err", err)
		}
		return err
	})
}

// Busy reports whether a call about a subject is under way.
func (b *Background) Busy(about Subject) bool { return b.queue.Busy(about) }

// Wait returns when no call is under way.
func (b *Background) Wait() { b.queue.Wait() }
