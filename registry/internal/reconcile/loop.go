// SPDX-License-Identifier: Apache-2.0

// Package reconcile finishes what takes long: a loop looks at the stored state now and then
// and does what can be done next, and calls to hosts go on beside the loop. Between two
// looks only the store remembers anything, so a registry that dies goes on where it was.
// The package must not know what is reconciled.
package reconcile

import (
	"context"
	"log/slog"
	"time"
)

// DefaultEvery is how often a Loop looks.
const DefaultEvery = time.Second

// Loop reconciles until it is told to end. It is a service.Task.
type Loop struct {
	name      string
	every     time.Duration
	reconcile func(context.Context) error
	wait      func()
	changed   func() <-chan struct{}
	soon      chan struct{}
	log       *slog.Logger
	ready     chan struct{}
}

// NewLoop returns a loop that does nothing before it runs. Name says in the plural what is
// reconciled. Reconcile brings everything as far as it can be brought now, and is called
// again whatever it returns; wait returns when the calls that reconcile began have ended.
// If every is 0, it is DefaultEvery.
func NewLoop(name string, every time.Duration, log *slog.Logger, reconcile func(context.Context) error, wait func()) *Loop {
	if every == 0 {
		every = DefaultEvery
	}
	return &Loop{name: name, every: every, reconcile: reconcile, wait: wait, log: log, ready: make(chan struct{}), soon: make(chan struct{}, 1)}
}

// LookAfter has the loop look at once, too, when a channel of changed is closed: changed returns
// one that is closed at the first change after the call. Call it before Run.
func (l *Loop) LookAfter(changed func() <-chan struct{}) { l.changed = changed }

// LookSoon has the loop look at once, or once more after the look that it is making.
func (l *Loop) LookSoon() {
	select {
	case l.soon <- struct{}{}:
	default: // that look is still to come
	}
}

// String names the loop.
func (l *Loop) String() string { return l.name }

// Every returns how often the loop looks.
func (l *Loop) Every() time.Duration { return l.every }

// Ready implements service.Task.
func (l *Loop) Ready() <-chan struct{} { return l.ready }

// Run reconciles until ctx ends. Work that hosts have begun goes on after that.
func (l *Loop) Run(ctx context.Context) error {
	close(l.ready)
	defer l.wait()
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	logged := false
	for {
		// Before the look, so that it misses no change.
		var changed <-chan struct{}
		if l.changed != nil {
			changed = l.changed()
		}
		err := l.reconcile(ctx)
		if err != nil && ctx.Err() == nil && !logged {
			// Once: the next looks will say the same.
			l.log.Warn(l.name+" cannot be looked after; they are tried again", "err", err)
		}
		logged = err != nil
		select {
		case <-changed:
		case <-l.soon:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
