// SPDX-License-Identifier: Apache-2.0

package hostop

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/reconcile"
)

// A Subject identifies an object of a migration. The calls about one subject are made one after
// the other.
type Subject struct{ Migration, What string }

// Background makes calls concurrently with a loop, at most one at a time for each subject.
type Background struct {
	moves string
	log   *slog.Logger
	queue reconcile.WorkQueue[Subject]
}

// NewBackground returns a Background. moves names one object of the loop in the log, such as "a
// move". look is called at the end of a call that the loop has waited for; it must make the loop
// continue.
func NewBackground(moves string, log *slog.Logger, look func()) *Background {
	return &Background{moves: moves, log: log, queue: reconcile.WorkQueue[Subject]{Ended: look}}
}

// Go starts a call about a subject, unless one is running or the subject's delay lasts. Success,
// or a conflict (the move has advanced since), ends the delay. The loop repeats the call after
// other errors and a delay.
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

// Busy reports whether a call about the subject is running.
func (b *Background) Busy(about Subject) bool { return b.queue.Busy(about) }

// Wait returns when no call is running.
func (b *Background) Wait() { b.queue.Wait() }
